// Private to data: one stored sample as the network's input and target, checked, normalised, augmented and,
// where it is an image, with the channels last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/base/philox.hpp"
#include "trireme/data/loader.hpp"

namespace trireme {

class Preparation {
public:
    Preparation(const DatasetLayout& layout, const LoaderOptions& options);

    /// @param position in the epoch: what the augmentation depends on, with seed and epoch.
    /// @throws Error (bad_data) naming file and row.
    void input(std::int64_t id, const std::byte* x, std::int64_t epoch, std::int64_t position, float* out);
    void target(std::int64_t id, const std::byte* y, float* out) const;
    std::int32_t label(std::int64_t id, const std::byte* y) const;

private:
    void normalize(const std::byte* x, float* out) const;
    void place(float* out, std::int64_t epoch, std::int64_t position) const;
    [[noreturn]] void refuse(std::int64_t id, const std::byte* values, DType type, std::int64_t count,
                             const std::string& name) const;

    const DatasetLayout& layout_;
    const LoaderOptions& options_;
    std::int64_t count_;  ///< elements of a sample
    std::int64_t channels_, height_, width_;
    bool moves_;                        ///< elements change their place
    std::vector<float> shift_, scale_;  ///< one for each channel, or for each element where there is no area
    std::vector<float> stored_order_;   ///< [C, H, W] of the sample at hand
};

}  // namespace trireme
