#include <algorithm>
#include <limits>
#include <vector>

#include "data/convert.hpp"
#include "data/preparation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

class WindowPreparation final : public Preparation {
public:
    WindowPreparation(const DatasetLayout& layout, const LoaderOptions& options)
        : Preparation({DType::i32, DType::i32, layout.target}),
          layout_(layout),
          padding_(static_cast<std::int32_t>(options.ignore_index)),
          limit_(options.classes > 0 ? options.classes : std::numeric_limits<std::int32_t>::max()),
          tokens_(static_cast<std::size_t>(layout.sample[0] + 1)) {}

    void prepare(const SamplePlace& place, const std::byte* x, const std::byte*, void* x_out,
                 void* y_out) override {
        const Range rows = layout_.stored({place.id, place.id + 1});
        const std::int64_t bad = to_tokens(layout_.x_type, x, rows.size(), limit_, tokens_.data());
        if (bad < rows.size())
            throw data_error(layout_.place_of(rows.begin + bad, layout_.x_name) +
                             ": expected a token from 0 to " + std::to_string(limit_ - 1) + ", found " +
                             to_text(value_at(layout_.x_type, x, bad)));
        const std::int64_t context = layout_.sample[0], targets = rows.size() - 1;
        auto* const inputs = static_cast<std::int32_t*>(x_out);
        auto* const outputs = static_cast<std::int32_t*>(y_out);
        std::copy_n(tokens_.data(), targets, inputs);
        std::copy_n(tokens_.data() + 1, targets, outputs);
        std::fill(inputs + targets, inputs + context, 0);
        std::fill(outputs + targets, outputs + context, padding_);
    }

private:
    const DatasetLayout& layout_;
    std::int32_t padding_;
    std::int64_t limit_;
    std::vector<std::int32_t> tokens_;  ///< of the window at hand
};

}  // namespace

std::unique_ptr<Preparation> prepare_windows(const DatasetLayout& layout, const LoaderOptions& options) {
    return std::make_unique<WindowPreparation>(layout, options);
}

}  // namespace trireme
