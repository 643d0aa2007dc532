#include "trireme/data/import.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/part_writer.hpp"
#include "data/row_source.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/permutation.hpp"

namespace trireme {
namespace {

void check_options(const ImportOptions& options) {
    if (options.inputs.empty()) throw usage_error("import: expected an input file, found none");
    if (options.output.empty()) throw usage_error("import: expected an output directory, found none");
    if (options.shards < 1)
        throw usage_error("shards: expected at least 1, found " + std::to_string(options.shards));
    if (options.deflate < 0 || options.deflate > 9)
        throw usage_error("deflate: expected 0 to 9, found " + std::to_string(options.deflate));
    if (options.chunk_rows < 0 || (options.deflate > 0 && options.chunk_rows == 0))
        throw usage_error("chunk_rows: expected at least 1 where chunks are compressed, found " +
                          std::to_string(options.chunk_rows));
    if (options.name.empty() || options.name.find('/') != std::string::npos)
        throw usage_error("name: expected the name of a part, found '" + options.name + "'");
    if (options.split.empty()) return;
    double sum = 0;
    for (const double fraction : options.split) {
        if (!(fraction > 0))
            throw usage_error("split: expected fractions above 0, found " + to_text(fraction));
        sum += fraction;
    }
    if (options.split.size() > 3)
        throw usage_error("split: expected fractions of train, valid and test, found " +
                          std::to_string(options.split.size()));
    if (std::fabs(sum - 1) > 1e-6)
        throw usage_error("split: expected fractions with the sum 1, found " + to_text(sum));
}

std::unique_ptr<RowSource> open_source(const ImportOptions& options) {
    if (options.kind == "csv") return open_csv(options);
    if (options.kind == "idx") return open_idx(options);
    if (options.kind == "text") return open_text(options);
    if (options.kind != "auto")
        throw usage_error("kind: expected auto, csv, idx or text, found '" + options.kind + "'");
    if (looks_like_text(options.inputs[0])) return open_text(options);
    return looks_like_idx(options.inputs[0]) ? open_idx(options) : open_csv(options);
}

/// Which part a row goes to: the rows as they come, or a keyed shuffle of them, cut at the cumulative
/// fractions.
class Split {
public:
    Split(const ImportOptions& options, const RowTable& table)
        : permutation_(table.rows, RandomStream(options.seed, Purpose::split, 0)),
          shuffled_(!table.contiguous_split) {
        const std::int64_t rows = table.rows;
        double sum = 0;
        for (const double fraction : options.split) {
            sum += fraction;
            ends_.push_back(std::clamp<std::int64_t>(std::llround(sum * static_cast<double>(rows)), 0, rows));
        }
        if (ends_.empty()) ends_.push_back(rows);
        ends_.back() = rows;
    }

    std::int64_t rows_of(std::size_t part) const { return ends_[part] - (part == 0 ? 0 : ends_[part - 1]); }
    std::size_t parts() const { return ends_.size(); }
    std::size_t part_of_row(std::int64_t row) const {
        if (ends_.size() == 1) return 0;
        const std::int64_t place = shuffled_ ? permutation_(row) : row;
        return static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), place) - ends_.begin());
    }
    /// Rows from this one on that go to its part, as far as that is known.
    std::int64_t run_from(std::int64_t row) const { return shuffled_ ? 1 : ends_[part_of_row(row)] - row; }

private:
    Permutation permutation_;
    bool shuffled_;
    std::vector<std::int64_t> ends_;
};

}  // namespace

void RowByRowSource::read(std::int64_t rows, void* x, void* y) {
    const std::size_t x_bytes = static_cast<std::size_t>(table_.sample.count()) * size_of(table_.x_type);
    const std::size_t y_bytes = table_.has_y ? size_of(table_.y_type) : 0;
    auto *to_x = static_cast<std::byte*>(x), *to_y = static_cast<std::byte*>(y);
    for (std::int64_t row = 0; row < rows; ++row, to_x += x_bytes, to_y += y_bytes) read_row(to_x, to_y);
}

DType import_type(const std::string& dtype, DType otherwise) {
    if (dtype == "auto") return otherwise;
    for (const DType type : {DType::f32, DType::u8, DType::i16, DType::i32})
        if (dtype == name_of(type)) return type;
    throw usage_error("dtype: expected auto, float32, uint8, int16 or int32, found '" + dtype + "'");
}

Shape import_shape(const Shape& wanted, const Shape& found) {
    if (wanted.rank() == 0) return found;
    if (wanted.count() != found.count())
        throw usage_error("shape: expected extents that hold " + std::to_string(found.count()) +
                          " values, found " + wanted.text() + ", which hold " +
                          std::to_string(wanted.count()));
    return wanted;
}

ImportResult import_data(const ImportOptions& options) {
    check_options(options);
    const std::unique_ptr<RowSource> source = open_source(options);
    const RowTable& table = source->table();
    const Split split(options, table);
    const std::vector<std::string> names = options.split.empty()
                                               ? std::vector<std::string>{options.name}
                                               : std::vector<std::string>{"train", "valid", "test"};
    for (std::size_t i = 0; i < split.parts(); ++i)
        if (split.rows_of(i) == 0)
            throw usage_error("split: " + names[i] + " would get none of the " + std::to_string(table.rows) +
                              " rows");
    std::filesystem::create_directories(options.output);
    std::vector<PartWriter> parts;
    parts.reserve(split.parts());
    for (std::size_t i = 0; i < split.parts(); ++i)
        parts.emplace_back(options, names[i], table, split.rows_of(i));
    for (std::int64_t row = 0; row < table.rows;) {
        PartWriter& part = parts[split.part_of_row(row)];
        const std::int64_t rows = std::min(split.run_from(row), part.room());
        source->read(rows, part.x(), part.y());
        part.take(rows);
        row += rows;
    }
    for (PartWriter& part : parts) part.finish();

    ImportResult result;
    for (PartWriter& part : parts) result.parts.push_back(part.publish());
    result.tokens = table.x_name == "/tokens";
    result.sample = table.sample;
    result.x_type = name_of(table.x_type);
    result.y_type = table.has_y ? name_of(table.y_type) : "none";
    result.classes = table.classes;
    return result;
}

}  // namespace trireme
