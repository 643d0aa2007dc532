#include <algorithm>
#include <cmath>
#include <vector>

#include "data/convert.hpp"
#include "data/preparation.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/philox.hpp"

namespace trireme {
namespace {

std::vector<float> for_each_channel(const std::vector<float>& values, std::int64_t channels,
                                    float otherwise) {
    if (values.size() > 1) return values;
    return std::vector<float>(static_cast<std::size_t>(channels), values.empty() ? otherwise : values[0]);
}

PreparedForm form_of(const DatasetLayout& layout, const LoaderOptions& options) {
    if (options.class_labels) return {DType::f32, DType::i32, Shape{}};
    return {DType::f32, DType::f32, Shape{layout.target.count()}};
}

class SamplePreparation final : public Preparation {
public:
    SamplePreparation(const DatasetLayout& layout, const LoaderOptions& options);
    void prepare(const SamplePlace& place, const std::byte* x, const std::byte* y, void* x_out,
                 void* y_out) override;

private:
    void input(const SamplePlace& place, const std::byte* x, float* out);
    void target(std::int64_t id, const std::byte* y, float* out) const;
    std::int32_t label(std::int64_t id, const std::byte* y) const;
    void normalize(const std::byte* x, float* out) const;
    void arrange(float* out, const SamplePlace& place) const;
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

SamplePreparation::SamplePreparation(const DatasetLayout& layout, const LoaderOptions& options)
    : Preparation(form_of(layout, options)),
      layout_(layout),
      options_(options),
      count_(layout.sample.count()),
      channels_(layout.sample[0]) {
    const bool image = layout.sample.rank() == 3;
    height_ = image ? layout.sample[1] : 1;
    width_ = image ? layout.sample[2] : count_ / channels_;
    const bool transposed = image && channels_ > 1 && height_ * width_ > 1;
    moves_ = transposed || options.crop > 0 || options.flip;
    shift_ = for_each_channel(options.normalization.shift, channels_, 0.0f);
    scale_ = for_each_channel(options.normalization.scale, channels_, 1.0f);
    if (moves_) stored_order_.resize(static_cast<std::size_t>(count_));
}

void SamplePreparation::prepare(const SamplePlace& place, const std::byte* x, const std::byte* y, void* x_out,
                                void* y_out) {
    input(place, x, static_cast<float*>(x_out));
    if (options_.class_labels)
        *static_cast<std::int32_t*>(y_out) = label(place.id, y);
    else
        target(place.id, y, static_cast<float*>(y_out));
}

void SamplePreparation::normalize(const std::byte* x, float* out) const {
    const std::int64_t area = height_ * width_;
    if (area == 1) return to_inputs(layout_.x_type, x, count_, shift_.data(), scale_.data(), out);
    const std::int64_t bytes = area * static_cast<std::int64_t>(size_of(layout_.x_type));
    for (std::size_t c = 0; c < shift_.size(); ++c, x += bytes, out += area)
        to_inputs(layout_.x_type, x, area, shift_[c], scale_[c], out);
}

void SamplePreparation::input(const SamplePlace& place, const std::byte* x, float* out) {
    float* const to = moves_ ? stored_order_.data() : out;
    normalize(x, to);
    if (is_real(layout_.x_type) && !all_finite(to, count_))
        refuse(place.id, x, layout_.x_type, count_, layout_.x_name);
    if (moves_) arrange(out, place);
}

/// From [C, H, W] to [H, W, C], through the crop's window and the flip.
void SamplePreparation::arrange(float* out, const SamplePlace& place) const {
    std::int64_t down = 0, right = 0;
    bool flipped = false;
    if (options_.crop > 0 || options_.flip) {
        const RandomStream stream(options_.seed, Purpose::augment, static_cast<std::uint64_t>(place.epoch));
        const PhiloxBlock words = stream.block(static_cast<std::uint64_t>(place.position));
        const std::uint64_t choices = 2 * static_cast<std::uint64_t>(options_.crop) + 1;
        down = static_cast<std::int64_t>(words[0] * choices >> 32) - options_.crop;
        right = static_cast<std::int64_t>(words[1] * choices >> 32) - options_.crop;
        flipped = options_.flip && (words[2] & 1u) != 0;
    }
    const std::int64_t area = height_ * width_;
    for (std::int64_t c = 0; c < channels_; ++c) {
        const float* const from = stored_order_.data() + c * area;
        const float padding =
            (0.0f - shift_[static_cast<std::size_t>(c)]) * scale_[static_cast<std::size_t>(c)];
        for (std::int64_t h = 0; h < height_; ++h) {
            float* to = out + h * width_ * channels_ + c;
            const std::int64_t from_h = h + down;
            const bool outside = from_h < 0 || from_h >= height_;
            // Columns [begin, end) of the window lie inside the image.
            const std::int64_t begin = outside ? width_ : std::clamp<std::int64_t>(-right, 0, width_);
            const std::int64_t end =
                outside ? width_ : std::clamp<std::int64_t>(width_ - right, begin, width_);
            const std::int64_t step = flipped ? -channels_ : channels_;
            if (flipped) to += (width_ - 1) * channels_;
            for (std::int64_t w = 0; w < begin; ++w, to += step) *to = padding;
            const float* source = from + from_h * width_ + right;
            for (std::int64_t w = begin; w < end; ++w, to += step) *to = source[w];
            for (std::int64_t w = end; w < width_; ++w, to += step) *to = padding;
        }
    }
}

void SamplePreparation::target(std::int64_t id, const std::byte* y, float* out) const {
    const std::int64_t count = layout_.target.count();
    to_inputs(layout_.y_type, y, count, 0.0f, 1.0f, out);
    if (is_real(layout_.y_type) && !all_finite(out, count))
        refuse(id, y, layout_.y_type, count, layout_.y_name);
    for (std::int64_t i = 0; options_.unit_targets && i < count; ++i)
        if (out[i] < 0 || out[i] > 1)
            throw data_error(layout_.place_of(id, layout_.y_name) +
                             ": expected a target from 0 to 1 for model.loss=bce, found " +
                             to_text(value_at(layout_.y_type, y, i)));
}

std::int32_t SamplePreparation::label(std::int64_t id, const std::byte* y) const {
    const std::int64_t classes = options_.classes > 0 ? options_.classes : std::int64_t{1} << 31;
    const auto label = integer_at(layout_.y_type, y, 0);
    if (!label || (*label != options_.ignore_index && (*label < 0 || *label >= classes)))
        throw data_error(layout_.place_of(id, layout_.y_name) + ": expected a class label from 0 to " +
                         std::to_string(classes - 1) + ", found " + to_text(value_at(layout_.y_type, y, 0)));
    return static_cast<std::int32_t>(*label);
}

void SamplePreparation::refuse(std::int64_t id, const std::byte* values, DType type, std::int64_t count,
                               const std::string& name) const {
    const auto fits = [&](std::int64_t i) {
        return std::isfinite(static_cast<float>(value_at(type, values, i)));
    };
    std::int64_t index = 0;
    while (index + 1 < count && fits(index)) ++index;
    const double value = value_at(type, values, index);
    throw data_error(layout_.place_of(id, name) + ": value " + to_text(value) +
                     (std::isfinite(value) ? " is too large for float32" : " is not a finite number"));
}

}  // namespace

std::unique_ptr<Preparation> prepare_samples(const DatasetLayout& layout, const LoaderOptions& options) {
    return std::make_unique<SamplePreparation>(layout, options);
}

}  // namespace trireme
