// IDX, the format of MNIST: two zero bytes, the element type, the rank, big-endian extents, then the
// elements.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "data/byte_stream.hpp"
#include "data/convert.hpp"
#include "data/row_source.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

std::optional<DType> idx_type(unsigned code) {
    switch (code) {
        case 0x08:
            return DType::u8;
        case 0x09:
            return DType::i8;
        case 0x0B:
            return DType::i16;
        case 0x0C:
            return DType::i32;
        case 0x0D:
            return DType::f32;
        case 0x0E:
            return DType::f64;
        default:
            return std::nullopt;
    }
}

bool is_idx_magic(const std::array<unsigned char, 4>& magic) {
    return magic[0] == 0 && magic[1] == 0 && idx_type(magic[2]) && magic[3] >= 1 &&
           magic[3] <= Shape::max_rank;
}

class IdxFile {
public:
    explicit IdxFile(const std::string& path) : stream_(path) {
        std::array<unsigned char, 4> bytes{};
        if (stream_.read(bytes.data(), 4) != 4 || !is_idx_magic(bytes))
            throw data_error(path + ": expected an IDX file, found something else");
        type_ = *idx_type(bytes[2]);
        for (int left = bytes[3]; left > 0; --left) {
            if (stream_.read(bytes.data(), 4) != 4)
                throw data_error(path + ": expected the extents of an IDX file, found its end");
            shape_.push_back(std::int64_t{bytes[0]} << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]);
        }
        row_.resize(static_cast<std::size_t>(shape_.inner().count()) * size_of(type_));
    }

    const std::string& path() const { return stream_.path(); }
    const Shape& shape() const { return shape_; }
    DType type() const { return type_; }

    /// The next row in the byte order of this machine.
    const std::byte* next() {
        const std::size_t got = stream_.read(row_.data(), row_.size());
        if (got != row_.size())
            throw data_error(path() + ": expected " + std::to_string(shape_[0]) + " rows, found only " +
                             std::to_string(rows_));
        ++rows_;
        const std::size_t width = size_of(type_);
        if constexpr (std::endian::native == std::endian::little)
            for (std::size_t at = 0; width > 1 && at < row_.size(); at += width)
                std::reverse(row_.data() + at, row_.data() + at + width);
        return row_.data();
    }
    void expect_end() {
        std::byte more{};
        if (stream_.read(&more, 1) != 0)
            throw data_error(path() + ": expected " + std::to_string(shape_[0]) +
                             " rows, found more data behind them");
    }

private:
    ByteStream stream_;
    DType type_ = DType::u8;
    Shape shape_;
    std::vector<std::byte> row_;
    std::int64_t rows_ = 0;
};

/// [h, w] images get their one channel.
Shape sample_of(const Shape& shape) {
    if (shape.rank() == 1) return Shape{1};
    if (shape.rank() == 3) return Shape{1, shape[1], shape[2]};
    return shape.inner();
}

class IdxSource final : public RowByRowSource {
public:
    explicit IdxSource(const ImportOptions& options) : images_(options.inputs[0]) {
        const bool labelled = options.label != "none";
        if (options.inputs.size() != (labelled ? 2 : 1))
            throw usage_error(
                "IDX: expected " +
                std::string(labelled ? "two files, images and labels (or label=none)" : "one file") +
                ", found " + std::to_string(options.inputs.size()));
        table_.rows = images_.shape()[0];
        table_.sample = import_shape(options.shape, sample_of(images_.shape()));
        table_.x_type = import_type(options.dtype, images_.type());
        if (table_.rows == 0) throw data_error(images_.path() + ": expected rows, found none");
        if (labelled) open_labels(options.inputs[1]);
    }

private:
    void read_row(void* x, void* y) override {
        convert(images_.next(), x);
        if (labels_) std::memcpy(y, labels_->next(), size_of(table_.y_type));
        if (++read_ == table_.rows) images_.expect_end();
    }

    void open_labels(const std::string& path) {
        IdxFile first(path);
        if (first.shape().rank() != 1)
            throw data_error(path + ": expected labels [n], found " + first.shape().text() +
                             " (images come first, then labels)");
        if (first.shape()[0] != table_.rows)
            throw data_error(path + ": expected " + std::to_string(table_.rows) +
                             " labels as there are images in " + images_.path() + ", found " +
                             std::to_string(first.shape()[0]));
        std::int64_t smallest = 0, largest = -1;
        for (std::int64_t row = 0; row < table_.rows; ++row) {
            const auto label = integer_at(first.type(), first.next(), 0);
            if (!label) continue;
            smallest = std::min(smallest, *label);
            largest = std::max(largest, *label);
        }
        first.expect_end();
        table_.has_y = true;
        table_.y_type = first.type();
        table_.classes = !is_real(first.type()) && smallest >= 0 ? largest + 1 : 0;
        labels_.emplace(path);
    }

    void convert(const std::byte* from, void* to) const {
        const std::int64_t count = table_.sample.count();
        if (table_.x_type == images_.type()) {
            std::memcpy(to, from, static_cast<std::size_t>(count) * size_of(table_.x_type));
            return;
        }
        with_type(table_.x_type, [&]<class T>(const T*) {
            if constexpr (std::is_arithmetic_v<T>) {
                for (std::int64_t i = 0; i < count; ++i) {
                    const double value = value_at(images_.type(), from, i);
                    const double least = static_cast<double>(std::numeric_limits<T>::lowest());
                    const double most = static_cast<double>(std::numeric_limits<T>::max());
                    const bool whole = !std::numeric_limits<T>::is_integer || std::floor(value) == value;
                    if (!(value >= least && value <= most && whole))
                        throw data_error(images_.path() + " row " + std::to_string(read_) +
                                         ": expected values of " + std::string(name_of(table_.x_type)) +
                                         ", found " + to_text(value));
                    static_cast<T*>(to)[i] = static_cast<T>(value);
                }
            }
        });
    }

    IdxFile images_;
    std::optional<IdxFile> labels_;
    std::int64_t read_ = 0;
};

}  // namespace

bool looks_like_idx(const std::string& path) {
    std::array<unsigned char, 4> magic{};
    return ByteStream(path).read(magic.data(), 4) == 4 && is_idx_magic(magic);
}

std::unique_ptr<RowSource> open_idx(const ImportOptions& options) {
    return std::make_unique<IdxSource>(options);
}

}  // namespace trireme
