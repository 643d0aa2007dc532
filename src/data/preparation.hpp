// Private to data: from the stored rows of one sample to the network's input and target. There is one form
// for rows of x and y, and one for windows of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "trireme/data/loader.hpp"

namespace trireme {

/// Which sample, and what its augmentation depends on beside the seed: its place in training.
struct SamplePlace {
    std::int64_t id = 0, epoch = 0, position = 0;
};

/// What a prepared sample consists of. Both types have four bytes.
struct PreparedForm {
    DType x = DType::f32, y = DType::i32;
    Shape target;
};

class Preparation {
public:
    virtual ~Preparation() = default;
    const PreparedForm& form() const { return form_; }

    /// @param x, y the sample's stored rows.
    /// @throws Error (bad_data) naming file and row.
    virtual void prepare(const SamplePlace& place, const std::byte* x, const std::byte* y, void* x_out,
                         void* y_out) = 0;

protected:
    explicit Preparation(const PreparedForm& form) : form_(form) {}

private:
    PreparedForm form_;
};

// Layout and options must outlive the preparation.

/// Rows, checked, normalised, augmented and, where they are images, with the channels last.
std::unique_ptr<Preparation> prepare_samples(const DatasetLayout& layout, const LoaderOptions& options);
/// Windows of tokens and of the tokens that follow them. A short last one is filled up with inputs 0 and
/// targets that do not count.
std::unique_ptr<Preparation> prepare_windows(const DatasetLayout& layout, const LoaderOptions& options);

}  // namespace trireme
