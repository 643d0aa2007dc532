#include "data/part_writer.hpp"

#include <algorithm>
#include <filesystem>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t buffer_bytes = std::int64_t{1} << 20;

/// "train-" followed by digits only and ".h5".
bool is_shard_of(const std::string& file, const std::string& name) {
    const std::string begin = name + "-", end = ".h5";
    if (!file.starts_with(begin) || !file.ends_with(end) || file.size() <= begin.size() + end.size())
        return false;
    const std::string middle = file.substr(begin.size(), file.size() - begin.size() - end.size());
    return middle.find_first_not_of("0123456789") == std::string::npos;
}

}  // namespace

PartWriter::PartWriter(const ImportOptions& options, const std::string& name, const RowTable& table,
                       std::int64_t rows)
    : directory_(options.output),
      name_(name),
      table_(table),
      rows_(rows),
      shards_(options.shards),
      chunk_rows_(options.deflate > 0 ? std::max<std::int64_t>(options.chunk_rows, 1) : options.chunk_rows),
      deflate_(options.deflate),
      x_bytes_(static_cast<std::size_t>(table.sample.count()) * size_of(table.x_type)),
      y_bytes_(table.has_y ? size_of(table.y_type) : 0) {
    buffer_rows_ = std::max<std::int64_t>(buffer_bytes / static_cast<std::int64_t>(x_bytes_), 1);
    // Whole chunks at a time, or each would be compressed more than once.
    if (chunk_rows_ > 0) buffer_rows_ = std::max(chunk_rows_, buffer_rows_ / chunk_rows_ * chunk_rows_);
    buffer_rows_ = std::min(buffer_rows_, std::max<std::int64_t>(rows, 1));
    x_.resize(static_cast<std::size_t>(buffer_rows_) * x_bytes_);
    y_.resize(static_cast<std::size_t>(buffer_rows_) * y_bytes_);
}

PartWriter::~PartWriter() {
    file_.reset();
    std::error_code ignored;
    for (const std::string& path : temporary_) fs::remove(path, ignored);
}

std::string PartWriter::path_of(std::int64_t shard) const {
    const std::size_t width = std::max<std::size_t>(3, std::to_string(shards_ - 1).size());
    std::string digits = std::to_string(shard);
    digits.insert(0, width - digits.size(), '0');
    return (fs::path(directory_) / (name_ + "-" + digits + ".h5")).string();
}

void PartWriter::open_shard() {
    temporary_.push_back(temporary_of(shard_));
    file_.emplace(temporary_.back(), io::Access::create);
    shard_rows_ = part_of({0, rows_}, shards_, shard_).size();
    const std::int64_t chunk = std::min(chunk_rows_, std::max<std::int64_t>(shard_rows_, 1));
    x_set_ = file_->create(table_.x_name, table_.x_type, table_.sample.batched(shard_rows_), chunk, deflate_);
    if (table_.has_y) y_set_ = file_->create("/y", table_.y_type, Shape{shard_rows_}, chunk, deflate_);
    written_ = 0;
}

std::int64_t PartWriter::room() {
    if (!file_) open_shard();
    return std::min(buffer_rows_ - buffered_, shard_rows_ - written_ - buffered_);
}

void PartWriter::take(std::int64_t rows) {
    buffered_ += rows;
    if (buffered_ == buffer_rows_ || written_ + buffered_ == shard_rows_) write_out();
    if (written_ == shard_rows_) close_shard();
}

void PartWriter::write_out() {
    const Range rows{written_, written_ + buffered_};
    x_set_->write_rows(rows, table_.x_type, x_.data());
    if (y_set_) y_set_->write_rows(rows, table_.y_type, y_.data());
    written_ += buffered_;
    buffered_ = 0;
}

void PartWriter::close_shard() {
    x_set_.reset();
    y_set_.reset();
    file_->flush();
    file_->close();
    file_.reset();
    ++shard_;
}

void PartWriter::finish() {
    // Shards are filled in order, so that those without rows come last.
    while (shard_ < shards_) {
        open_shard();
        close_shard();
    }
}

ImportedPart PartWriter::publish() {
    ImportedPart part{name_, {}, rows_};
    for (std::int64_t shard = 0; shard < shards_; ++shard) {
        fs::rename(temporary_of(shard), path_of(shard));
        part.files.push_back(path_of(shard));
    }
    temporary_.clear();
    for (const auto& entry : fs::directory_iterator(directory_)) {
        const std::string path = (fs::path(directory_) / entry.path().filename()).string();
        if (is_shard_of(entry.path().filename().string(), name_) &&
            std::find(part.files.begin(), part.files.end(), path) == part.files.end())
            fs::remove(entry.path());
    }
    return part;
}

}  // namespace trireme
