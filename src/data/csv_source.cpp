#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "data/csv_reader.hpp"
#include "data/row_source.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

char separator_from(const std::string& name) {
    if (name == "auto") return '\0';
    if (name == "tab" || name == "\t" || name == "\\t") return '\t';
    if (name == "space" || name == " ") return ' ';
    if (name == "," || name == "comma") return ',';
    if (name == ";" || name == "semicolon") return ';';
    throw usage_error("separator: expected auto, comma, semicolon, tab or space, found '" + name + "'");
}

using Cells = std::vector<std::string_view>;

class CsvSource final : public RowByRowSource {
public:
    explicit CsvSource(const ImportOptions& options);

private:
    void read_row(void* x, void* y) override;
    bool begins_with_header(const Cells& first) const;
    std::size_t find_label() const;
    void look_through();
    void look_at_label(std::string_view cell);
    bool next_record();
    void open(std::size_t file);
    std::string place(std::size_t column) const;
    [[noreturn]] void refuse(std::size_t column, const std::string& expected) const;
    double number(std::size_t column) const;
    template <class T>
    void read_inputs(T* x) const;

    const ImportOptions& options_;
    std::optional<CsvReader> reader_;
    std::size_t file_ = 0;  ///< index of the input at hand
    Cells cells_;
    std::vector<std::string> names_;  ///< of the columns; empty without a header
    bool header_ = false;
    std::size_t columns_ = 0, label_ = 0;  ///< label_ == columns_: none
    bool whole_labels_ = true;
    std::int64_t smallest_ = 0, largest_ = -1;
};

CsvSource::CsvSource(const ImportOptions& options) : options_(options) {
    if (options.header != "auto" && options.header != "yes" && options.header != "no")
        throw usage_error("header: expected auto, yes or no, found '" + options.header + "'");
    look_through();
    const std::int64_t inputs = static_cast<std::int64_t>(columns_ - (label_ < columns_ ? 1 : 0));
    if (inputs == 0)
        throw usage_error(options.inputs[0] + ": expected a column beside the label, found " +
                          std::to_string(columns_) + " column(s)");
    table_.sample = import_shape(options.shape, Shape{inputs});
    table_.x_type = import_type(options.dtype, DType::f32);
    table_.has_y = label_ < columns_;
    const bool small = smallest_ >= INT32_MIN && largest_ <= INT32_MAX;
    table_.y_type = !whole_labels_ ? DType::f32 : small ? DType::i32 : DType::i64;
    table_.classes = whole_labels_ && smallest_ >= 0 && largest_ < INT32_MAX ? largest_ + 1 : 0;
    open(0);
}

void CsvSource::open(std::size_t file) {
    file_ = file;
    reader_.emplace(options_.inputs[file], separator_from(options_.separator));
    if (header_ && file > 0 && !reader_->next(cells_)) cells_.clear();
    if (header_ && file == 0 && columns_ > 0) reader_->next(cells_);
}

bool CsvSource::begins_with_header(const Cells& first) const {
    if (options_.header != "auto") return options_.header == "yes";
    return std::any_of(first.begin(), first.end(),
                       [](std::string_view cell) { return !trim(cell).empty() && !parse_real(cell); });
}

std::size_t CsvSource::find_label() const {
    const std::string& label = options_.label;
    if (label == "none") return columns_;
    const auto named = std::find(names_.begin(), names_.end(), label);
    if (named != names_.end()) return static_cast<std::size_t>(named - names_.begin());
    if (label == "last") return columns_ - 1;
    const auto index = parse_int(label);
    const std::int64_t columns = static_cast<std::int64_t>(columns_);
    if (index && *index >= -columns && *index < columns)
        return static_cast<std::size_t>(*index < 0 ? *index + columns : *index);
    const std::string near = nearest(label, names_);
    throw usage_error(options_.inputs[0] + ": label: expected a column's name, its index below " +
                      std::to_string(columns) + ", last or none, found '" + label + "'" +
                      (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

/// The first pass: columns, header, rows and the kind of labels.
void CsvSource::look_through() {
    for (std::size_t file = 0; file < options_.inputs.size(); ++file) {
        const std::int64_t before = table_.rows;
        open(file);
        if (file > 0 && header_ &&
            !std::equal(cells_.begin(), cells_.end(), names_.begin(), names_.end(),
                        [](auto cell, const auto& name) { return trim(cell) == name; }))
            throw data_error(reader_->path() + ": expected the same header as in " + options_.inputs[0] +
                             ", found another");
        if (file == 0) {
            if (!reader_->next(cells_))
                throw data_error(reader_->path() + ": expected rows of numbers, found an empty file");
            columns_ = cells_.size();
            header_ = begins_with_header(cells_);
            if (header_)
                for (const std::string_view cell : cells_) names_.emplace_back(trim(cell));
            label_ = find_label();
            open(0);
        }
        while (reader_->next(cells_)) {
            ++table_.rows;
            if (cells_.size() != columns_)
                throw data_error(reader_->path() + " line " + std::to_string(reader_->line()) +
                                 ": expected " + std::to_string(columns_) + " columns, found " +
                                 std::to_string(cells_.size()));
            if (label_ < columns_) look_at_label(cells_[label_]);
        }
        if (table_.rows == before)
            throw data_error(reader_->path() + ": expected rows of numbers, found " +
                             (header_ ? "only a header" : "an empty file"));
    }
}

void CsvSource::look_at_label(std::string_view cell) {
    if (const auto whole = parse_int(cell)) {
        smallest_ = std::min(smallest_, *whole);
        largest_ = std::max(largest_, *whole);
        return;
    }
    number(label_);
    whole_labels_ = false;
}

bool CsvSource::next_record() {
    while (!reader_->next(cells_)) {
        if (file_ + 1 == options_.inputs.size()) return false;
        open(file_ + 1);
    }
    return true;
}

std::string CsvSource::place(std::size_t column) const {
    return reader_->path() + " line " + std::to_string(reader_->line()) + ", column " +
           (names_.empty() ? std::to_string(column) : names_[column]);
}

void CsvSource::refuse(std::size_t column, const std::string& expected) const {
    const std::string cell(trim(cells_[column]));
    throw data_error(place(column) + ": expected " + expected + ", found " +
                     (cell.empty() ? "an empty cell" : "'" + cell + "'"));
}

double CsvSource::number(std::size_t column) const {
    const auto value = parse_real(cells_[column]);
    if (!value || !std::isfinite(*value)) refuse(column, "a number");
    return *value;
}

template <class T>
void CsvSource::read_inputs(T* x) const {
    for (std::size_t column = 0; column < columns_; ++column) {
        if (column == label_) continue;
        const double value = number(column);
        if constexpr (std::numeric_limits<T>::is_integer) {
            if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max() ||
                std::floor(value) != value)
                refuse(column, "a whole number from " + std::to_string(std::numeric_limits<T>::min()) +
                                   " to " + std::to_string(std::numeric_limits<T>::max()));
        } else if (std::fabs(value) > std::numeric_limits<T>::max()) {
            refuse(column, "a number that float32 can hold");
        }
        *x++ = static_cast<T>(value);
    }
}

void CsvSource::read_row(void* x, void* y) {
    if (!next_record() || cells_.size() != columns_)
        throw data_error(reader_->path() +
                         ": expected the same rows as a moment ago, found others: the file has changed");
    switch (table_.x_type) {
        case DType::u8:
            read_inputs(static_cast<std::uint8_t*>(x));
            break;
        case DType::i16:
            read_inputs(static_cast<std::int16_t*>(x));
            break;
        case DType::i32:
            read_inputs(static_cast<std::int32_t*>(x));
            break;
        default:
            read_inputs(static_cast<float*>(x));
            break;
    }
    if (!table_.has_y) return;
    switch (table_.y_type) {
        case DType::i32:
            *static_cast<std::int32_t*>(y) = static_cast<std::int32_t>(parse_int(cells_[label_]).value_or(0));
            break;
        case DType::i64:
            *static_cast<std::int64_t*>(y) = parse_int(cells_[label_]).value_or(0);
            break;
        default:
            *static_cast<float*>(y) = static_cast<float>(number(label_));
            break;
    }
}

}  // namespace

std::unique_ptr<RowSource> open_csv(const ImportOptions& options) {
    return std::make_unique<CsvSource>(options);
}

}  // namespace trireme
