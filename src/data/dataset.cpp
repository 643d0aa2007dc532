#include "trireme/data/dataset.hpp"

#include <algorithm>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme {
namespace {

constexpr const char* tokens_name = "/tokens";

DType widest_integer(DType a, DType b) {
    const auto is_signed = [](DType type) {
        return type == DType::i8 || type == DType::i16 || type == DType::i32 || type == DType::i64;
    };
    if (is_signed(a) == is_signed(b)) return size_of(a) >= size_of(b) ? a : b;
    // A signed type that holds the unsigned one is twice as wide.
    const std::size_t wanted = std::max(size_of(is_signed(a) ? a : b), 2 * size_of(is_signed(a) ? b : a));
    return wanted <= 2 ? DType::i16 : wanted <= 4 ? DType::i32 : DType::i64;
}

DType widest(DType a, DType b) {
    if (a == b) return a;
    if (!is_real(a)) return widest_integer(a, b);
    return a == DType::f64 || b == DType::f64 ? DType::f64 : DType::f32;
}

const char* class_of(DType type) {
    return is_real(type) ? "real numbers" : "integers";
}

/// [n] with one number a sample is the same as [n, 1].
Shape extents_of_sample(const io::Dataset& x) {
    const Shape& shape = x.info().shape;
    if (shape.rank() == 0) throw data_error(x.name() + ": expected rows of samples, found a single number");
    const Shape sample = shape.rank() == 1 ? Shape{1} : shape.inner();
    if (sample.count() == 0)
        throw data_error(x.name() + ": expected samples of at least one number, found " + shape.text());
    return sample;
}

Shape extents_of_target(const io::Dataset& y) {
    const Shape& shape = y.info().shape;
    if (shape.rank() < 1 || shape.rank() > 2 || shape.inner().count() == 0)
        throw data_error(y.name() + ": expected targets [n] or [n, k], found " + shape.text());
    return shape.inner();
}

/// A layout without shards yet.
DatasetLayout layout_for(DataKind kind, const DatasetOptions& options) {
    DatasetLayout layout;
    layout.kind = kind;
    if (kind == DataKind::samples) {
        layout.x_name = options.x;
        layout.y_name = options.y;
        return layout;
    }
    layout.x_name = tokens_name;
    layout.y_name = "";  // the targets are tokens themselves
    layout.sample = layout.target = Shape{options.context};
    layout.y_type = DType::i32;
    return layout;
}

/// What the shards seen so far agree on, and the file that said so first.
class Scan {
public:
    explicit Scan(const DatasetOptions& options)
        : options_(options),
          layout_(layout_for(options.kind == "tokens" ? DataKind::tokens : DataKind::samples, options)) {}

    void add(const std::string& path) {
        const io::File file = open(path);
        if (layout_.shards.empty() && options_.kind == "auto" && file.has(tokens_name) &&
            !file.has(options_.x))
            layout_ = layout_for(DataKind::tokens, options_);
        const std::int64_t rows = layout_.is_tokens() ? add_tokens(file) : add_samples(file);
        const std::int64_t begin = layout_.stored_rows();
        layout_.shards.push_back({path, {begin, begin + rows}});
    }

    DatasetLayout take() { return std::move(layout_); }

private:
    std::int64_t add_samples(const io::File& file) {
        const io::Dataset x = file.open(layout_.x_name);
        const Shape sample = extents_of_sample(x);
        const std::int64_t rows = x.info().shape[0];
        if (layout_.shards.empty()) {
            layout_.sample = sample;
            layout_.x_type = x.info().dtype;
        }
        compare(x, "samples of ", layout_.sample, sample, layout_.x_type);
        layout_.x_type = widest(layout_.x_type, x.info().dtype);
        if (layout_.has_targets()) add_targets(file.open(layout_.y_name), rows);
        return rows;
    }

    std::int64_t add_tokens(const io::File& file) {
        const io::Dataset tokens = file.open(tokens_name);
        const DType type = tokens.info().dtype;
        if (tokens.info().shape.rank() != 1)
            throw data_error(tokens.name() + ": expected tokens [n], found " + tokens.info().shape.text());
        if (is_real(type))
            throw data_error(tokens.name() + ": expected integers, found " + std::string(name_of(type)));
        layout_.x_type = layout_.shards.empty() ? type : widest(layout_.x_type, type);
        return tokens.info().shape[0];
    }

    void add_targets(const io::Dataset& y, std::int64_t rows) {
        const Shape target = extents_of_target(y);
        if (y.info().shape[0] != rows)
            throw data_error(y.name() + ": expected " + std::to_string(rows) + " rows as in " +
                             layout_.x_name + ", found " + std::to_string(y.info().shape[0]));
        if (layout_.shards.empty()) {
            layout_.target = target;
            layout_.y_type = y.info().dtype;
        }
        compare(y, "targets of ", layout_.target, target, layout_.y_type);
        layout_.y_type = widest(layout_.y_type, y.info().dtype);
    }

    io::File open(const std::string& path) const {
        try {
            return {path, io::Access::read};
        } catch (const Error& error) {
            const bool undecided = layout_.shards.empty() && options_.kind == "auto";
            throw data_error(std::string(error.what()) + " (wanted: " + layout_.x_name +
                             (layout_.has_targets() ? " and " + layout_.y_name : "") +
                             (undecided ? std::string(", or ") + tokens_name : "") + ")");
        }
    }

    void compare(const io::Dataset& dataset, const std::string& what, const Shape& expected,
                 const Shape& found, DType type) const {
        if (expected != found)
            throw data_error(dataset.name() + ": expected " + what + expected.text() + as_in_first() +
                             ", found " + found.text());
        if (is_real(type) != is_real(dataset.info().dtype))
            throw data_error(dataset.name() + ": expected " + class_of(type) + as_in_first() + ", found " +
                             std::string(name_of(dataset.info().dtype)));
    }

    std::string as_in_first() const {
        return layout_.shards.empty() ? "" : " as in " + layout_.shards.front().path;
    }

    const DatasetOptions& options_;
    DatasetLayout layout_;
};

DatasetLayout scan(const std::string& patterns, const DatasetOptions& options) {
    const std::vector<std::string> parts = split(patterns, ',');
    if (parts.empty()) throw data_error("expected the path of a data set, found an empty one");
    for (const std::string& pattern : parts)
        if (io::glob_paths(pattern).empty())
            throw data_error(pattern + ": expected HDF5 files, found no file of that name");
    Scan result(options);
    for (const std::string& path : io::glob_paths(patterns)) result.add(path);
    DatasetLayout layout = result.take();
    if (layout.rows() == 0)
        throw data_error(patterns + ": " + layout.x_name + ": expected at least " +
                         (layout.is_tokens() ? "two tokens" : "one sample") + ", found " +
                         std::to_string(layout.stored_rows()) + (layout.is_tokens() ? "" : " rows") + " in " +
                         std::to_string(layout.shards.size()) + " file(s)");
    return layout;
}

// The verdict travels as fields that end with a zero byte, which no path contains.
std::string to_fields(const DatasetLayout& layout) {
    std::string text;
    const auto put = [&](const std::string& field) { text.append(field).push_back('\0'); };
    const auto put_shape = [&](const Shape& shape) {
        put(std::to_string(shape.rank()));
        for (const std::int64_t extent : shape) put(std::to_string(extent));
    };
    put(std::to_string(static_cast<int>(layout.kind)));
    put_shape(layout.sample);
    put_shape(layout.target);
    put(std::to_string(static_cast<int>(layout.x_type)));
    put(std::to_string(static_cast<int>(layout.y_type)));
    for (const Shard& shard : layout.shards) {
        put(std::to_string(shard.ids.size()));
        put(shard.path);
    }
    return text;
}

DatasetLayout from_fields(const std::string& text, const DatasetOptions& options) {
    std::istringstream stream(text);
    std::string field;
    const auto take = [&] { return std::getline(stream, field, '\0') ? std::stoll(field) : 0; };
    const auto take_shape = [&] {
        Shape shape;
        for (std::int64_t rank = take(); rank > 0; --rank) shape.push_back(take());
        return shape;
    };
    DatasetLayout layout = layout_for(static_cast<DataKind>(take()), options);
    layout.sample = take_shape();
    layout.target = take_shape();
    layout.x_type = static_cast<DType>(take());
    layout.y_type = static_cast<DType>(take());
    while (std::getline(stream, field, '\0')) {
        const std::int64_t begin = layout.stored_rows(), rows = std::stoll(field);
        std::getline(stream, field, '\0');
        layout.shards.push_back({field, {begin, begin + rows}});
    }
    return layout;
}

}  // namespace

std::int64_t DatasetLayout::rows() const {
    if (!is_tokens()) return stored_rows();
    const std::int64_t targets = std::max<std::int64_t>(stored_rows() - 1, 0);
    return round_up(targets, sample[0]) / sample[0];
}

Range DatasetLayout::stored(Range ids) const {
    if (!is_tokens()) return ids;
    return intersect({0, stored_rows()}, {ids.begin * sample[0], ids.end * sample[0] + 1});
}

const Shard& DatasetLayout::shard_of(std::int64_t row) const {
    return *std::partition_point(shards.begin(), shards.end(),
                                 [&](const Shard& shard) { return shard.ids.end <= row; });
}

std::string DatasetLayout::place_of(std::int64_t row, const std::string& dataset) const {
    const Shard& shard = shard_of(row);
    return shard.path + ":" + dataset + " row " + std::to_string(row - shard.ids.begin);
}

DatasetLayout open_dataset(Communicator& comm, const std::string& patterns, const DatasetOptions& options) {
    if (options.kind != "auto" && options.kind != "samples" && options.kind != "tokens")
        throw usage_error("data.kind: expected auto, samples or tokens, found '" + options.kind + "'");
    if (options.context < 1 || options.context > INT32_MAX)
        throw usage_error("model.context: expected 1 to " + std::to_string(INT32_MAX) + ", found " +
                          std::to_string(options.context));
    std::string fields;
    agreed_by_one(comm, [&] { fields = to_fields(scan(patterns, options)); });
    return from_fields(broadcast_text(comm, std::move(fields)), options);
}

}  // namespace trireme
