// Facts about a whole data set that every rank must know alike: the number of classes, the mean and the
// deviation.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "data/convert.hpp"
#include "data/shard_reader.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/data/dataset.hpp"

namespace trireme {
namespace {

constexpr std::int64_t piece_bytes = std::int64_t{1} << 20;
constexpr std::int64_t segments = 64;

/// Calls use(ids, bytes) for consecutive pieces of a range of samples.
template <class Read, class Use>
void by_pieces(Range ids, std::int64_t row_bytes, Read read, Use use) {
    const std::int64_t rows =
        std::clamp<std::int64_t>(piece_bytes / row_bytes, 1, std::max<std::int64_t>(ids.size(), 1));
    std::vector<std::byte> buffer(static_cast<std::size_t>(rows * row_bytes));
    for (std::int64_t id = ids.begin; id < ids.end; id += rows) {
        const Range piece = intersect(ids, {id, id + rows});
        read(piece, buffer.data());
        use(piece, buffer.data());
    }
}

std::int64_t largest_label(const DatasetLayout& layout, Range ids, std::int64_t ignore_index) {
    ShardReader reader(layout);
    std::int64_t largest = -1;
    const auto look = [&](Range piece, const std::byte* labels) {
        for (std::int64_t i = 0; i < piece.size(); ++i) {
            const auto label = integer_at(layout.y_type, labels, i);
            if (label && (*label == ignore_index || (*label >= 0 && *label < INT32_MAX))) {
                if (*label != ignore_index) largest = std::max(largest, *label);
                continue;
            }
            throw data_error(layout.place_of(piece.begin + i, layout.y_name) +
                             ": expected a class label (an integer from 0), found " +
                             to_text(value_at(layout.y_type, labels, i)));
        }
    };
    by_pieces(
        ids, reader.y_bytes(), [&](Range piece, void* to) { reader.read_y(piece, to); }, look);
    return largest;
}

std::int64_t largest_token(const DatasetLayout& layout, Range rows) {
    constexpr std::int64_t limit = INT32_MAX;
    ShardReader reader(layout);
    std::int32_t largest = -1;
    std::vector<std::int32_t> tokens;
    const auto look = [&](Range piece, const std::byte* stored) {
        tokens.resize(static_cast<std::size_t>(piece.size()));
        const std::int64_t bad = to_tokens(layout.x_type, stored, piece.size(), limit, tokens.data());
        if (bad < piece.size())
            throw data_error(layout.place_of(piece.begin + bad, layout.x_name) +
                             ": expected a token (an integer from 0 to " + std::to_string(limit - 1) +
                             "), found " + to_text(value_at(layout.x_type, stored, bad)));
        largest = std::max(largest, *std::max_element(tokens.begin(), tokens.end()));
    };
    by_pieces(
        rows, reader.x_bytes(), [&](Range piece, void* to) { reader.read_x(piece, to); }, look);
    return largest;
}

/// Adds d and d² of one channel's values to the sums, d being the distance from a shift near the mean.
template <class T>
void add_channel(const T* values, std::int64_t count, double shift, double& sum, double& squares) {
    // Eight sums side by side, in one fixed order whatever the processor.
    constexpr std::int64_t width = 8;
    double sums[width] = {}, square_sums[width] = {};
    std::int64_t i = 0;
    for (; i + width <= count; i += width)
        for (std::int64_t k = 0; k < width; ++k) {
            const double d = static_cast<double>(values[i + k]) - shift;
            sums[k] += d;
            square_sums[k] += d * d;
        }
    for (; i < count; ++i) {
        const double d = static_cast<double>(values[i]) - shift;
        sums[0] += d;
        square_sums[0] += d * d;
    }
    for (std::int64_t k = 0; k < width; ++k) {
        sum += sums[k];
        squares += square_sums[k];
    }
}

/// The same for a row in which each value is a channel of its own.
template <class T>
void add_features(const T* values, std::int64_t count, const double* shift, double* sum, double* squares) {
    for (std::int64_t c = 0; c < count; ++c) {
        const double d = static_cast<double>(values[c]) - shift[c];
        sum[c] += d;
        squares[c] += d * d;
    }
}

/// Mean and sum of squared deviations of each channel over one segment of samples.
class SegmentStatistics {
public:
    SegmentStatistics(const DatasetLayout& layout, ShardReader& reader)
        : layout_(layout),
          reader_(reader),
          channels_(layout.sample[0]),
          area_(layout.sample.count() / channels_) {}

    void measure(Range ids, double* means, double* deviations) {
        shift_.clear();
        sum_.assign(static_cast<std::size_t>(channels_), 0.0);
        squares_ = sum_;
        by_pieces(
            ids, reader_.x_bytes(), [&](Range piece, void* to) { reader_.read_x(piece, to); },
            [&](Range piece, const std::byte* values) { add(piece, values); });
        const double count = static_cast<double>(ids.size() * area_);
        for (std::size_t c = 0; c < sum_.size(); ++c) {
            means[c] = shift_[c] + sum_[c] / count;
            deviations[c] = std::max(0.0, squares_[c] - sum_[c] * (sum_[c] / count));
        }
    }

private:
    void add(Range piece, const std::byte* values) {
        with_type(layout_.x_type, [&]<class T>(const T*) {
            const T* row = reinterpret_cast<const T*>(values);
            if (shift_.empty())
                for (std::int64_t c = 0; c < channels_; ++c)
                    shift_.push_back(static_cast<double>(row[c * area_]));
            for (std::int64_t i = 0; i < piece.size(); ++i, row += channels_ * area_) {
                if (area_ == 1) {
                    add_features(row, channels_, shift_.data(), sum_.data(), squares_.data());
                    continue;
                }
                for (std::size_t c = 0; c < shift_.size(); ++c)
                    add_channel(row + static_cast<std::int64_t>(c) * area_, area_, shift_[c], sum_[c],
                                squares_[c]);
            }
        });
        if (is_real(layout_.x_type)) expect_finite(piece, values);
    }

    void expect_finite(Range piece, const std::byte* values) const {
        if (std::all_of(squares_.begin(), squares_.end(), [](double sum) { return std::isfinite(sum); }))
            return;
        const std::int64_t row = channels_ * area_;
        for (std::int64_t i = 0; i < piece.size() * row; ++i) {
            const double value = value_at(layout_.x_type, values, i);
            if (!std::isfinite(value) || std::fabs(value) > 1e150)
                throw data_error(layout_.place_of(piece.begin + i / row, layout_.x_name) + ": value " +
                                 to_text(value) +
                                 (std::isfinite(value) ? " is too large" : " is not a finite number"));
        }
    }

    const DatasetLayout& layout_;
    ShardReader& reader_;
    std::int64_t channels_, area_;
    std::vector<double> shift_, sum_, squares_;
};

/// The mean and deviation of a channel from those of its segments, one after another: Chan, Golub, LeVeque,
/// "Updating formulae and a pairwise algorithm for computing sample variances", 1979.
class Merged {
public:
    void add(double count, double mean, double squares) {
        const double apart = mean - mean_;
        const double share = count / (count_ + count);
        squares_ += squares + apart * apart * count_ * share;
        mean_ += apart * share;
        count_ += count;
    }
    /// The same zero on any number of ranks: -0 + 0 is 0.
    float shift() const { return static_cast<float>(mean_) + 0.0f; }
    float scale() const {
        const float scale = static_cast<float>(1 / std::sqrt(squares_ / count_));
        return std::isfinite(scale) ? scale : 1.0f;
    }

private:
    double count_ = 0, mean_ = 0, squares_ = 0;
};

Normalization standard_normalization(Communicator& comm, const DatasetLayout& layout) {
    const std::size_t channels = static_cast<std::size_t>(layout.sample[0]);
    const Range all{0, layout.rows()};
    // Means and sums of squared deviations of each segment, zero on all ranks but the one that measures it.
    std::vector<double> slots(2 * segments * channels, 0.0);
    const auto slot_of = [&](std::int64_t segment) {
        return slots.data() + static_cast<std::size_t>(segment) * 2 * channels;
    };
    agreed_by_all(comm, [&] {
        ShardReader reader(layout);
        SegmentStatistics statistics(layout, reader);
        for (std::int64_t segment = comm.rank(); segment < segments; segment += comm.size()) {
            const Range ids = part_of(all, segments, segment);
            if (!ids.empty()) statistics.measure(ids, slot_of(segment), slot_of(segment) + channels);
        }
    });
    all_reduce_values(comm, std::span<double>(slots));

    Normalization result;
    const std::int64_t area = layout.sample.count() / layout.sample[0];
    for (std::size_t c = 0; c < channels; ++c) {
        Merged merged;
        for (std::int64_t segment = 0; segment < segments; ++segment) {
            const Range ids = part_of(all, segments, segment);
            if (!ids.empty())
                merged.add(static_cast<double>(ids.size() * area), slot_of(segment)[c],
                           slot_of(segment)[channels + c]);
        }
        result.shift.push_back(merged.shift());
        result.scale.push_back(merged.scale());
    }
    return result;
}

float largest_of(DType type) {
    return with_type(type, []<class T>(const T*) {
        if constexpr (std::numeric_limits<T>::is_integer)
            return static_cast<float>(std::numeric_limits<T>::max());
        else
            return 1.0f;
    });
}

}  // namespace

/// More are a mistake in the data rather than classes.
constexpr std::int64_t most_classes = std::int64_t{1} << 24;

std::int64_t count_classes(Communicator& comm, const DatasetLayout& layout, std::int64_t ignore_index) {
    std::int64_t largest = -1;
    agreed_by_all(comm, [&] {
        const Range mine = part_of({0, layout.stored_rows()}, comm.size(), comm.rank());
        if (layout.is_tokens()) {
            largest = largest_token(layout, mine);
            return;
        }
        if (layout.target.count() != 1)
            throw data_error(layout.shards.front().path + ":" + layout.y_name +
                             ": expected one class label for each sample, found " + layout.target.text());
        largest = largest_label(layout, mine, ignore_index);
    });
    const std::int64_t classes = all_reduce_value(comm, largest, Reduce::max) + 1;
    if (classes > most_classes)
        throw Error(Status::bad_data,
                    layout.shards.front().path + (layout.shards.size() > 1 ? " and the other files" : "") +
                        ": " +
                        (layout.is_tokens() ? layout.x_name + ": expected tokens below "
                                            : layout.y_name + ": expected class labels below ") +
                        std::to_string(most_classes) + ", found " + std::to_string(classes - 1) +
                        (layout.is_tokens() ? "" : "; for numbers to be predicted use model.loss=mse"),
                    Scope::all_ranks);
    return classes;
}

Normalization make_normalization(Communicator& comm, const DatasetLayout& layout, const std::string& kind) {
    if (kind == "none") return {};
    if (layout.is_tokens())
        throw usage_error("data.normalize=" + kind + ": expected none for token data (" +
                          layout.shards.front().path + " has " + layout.x_name + ")");
    if (kind == "unit") {
        if (is_real(layout.x_type)) return {};
        return {{0.0f}, {1.0f / largest_of(layout.x_type)}};
    }
    if (kind == "standard") return standard_normalization(comm, layout);
    throw usage_error("data.normalize: expected none, unit or standard, found '" + kind + "'");
}

}  // namespace trireme
