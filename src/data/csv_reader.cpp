#include "data/csv_reader.hpp"

#include <algorithm>
#include <cstring>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr std::size_t first_buffer = std::size_t{1} << 20, largest_record = std::size_t{1} << 28;

char most_frequent_separator(std::string_view record) {
    char best = ',';
    std::ptrdiff_t most = 0;
    for (const char candidate : {',', ';', '\t'}) {
        std::ptrdiff_t count = 0;
        bool quoted = false;
        for (const char c : record) {
            quoted ^= c == '"';
            count += !quoted && c == candidate;
        }
        if (count > most) best = candidate;
        most = std::max(most, count);
    }
    return best;
}

bool blank(char c) {
    return c == ' ' || c == '\t';
}

}  // namespace

CsvReader::CsvReader(const std::string& path, char separator)
    : stream_(path), separator_(separator), buffer_(first_buffer) {
    read_more();
    constexpr std::string_view mark = "\xEF\xBB\xBF";  // some programs begin UTF-8 with it
    if (std::string_view(buffer_.data(), end_).starts_with(mark)) begin_ = mark.size();
}

/// Moves what is not used to the front and reads behind it; false when the file is at its end.
bool CsvReader::read_more() {
    if (at_end_) return false;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ == buffer_.size()) {
        if (buffer_.size() >= largest_record)
            throw data_error(stream_.path() + " line " + std::to_string(next_line_) +
                             ": expected a line end, found none in " + bytes_text(static_cast<double>(end_)));
        buffer_.resize(2 * buffer_.size());
    }
    const std::size_t wanted = buffer_.size() - end_, got = stream_.read(buffer_.data() + end_, wanted);
    end_ += got;
    at_end_ = got < wanted;
    return got > 0;
}

/// Sets the next record: up to a line end outside quotes, or the end of the file.
bool CsvReader::find_record(bool& quoted) {
    std::size_t looked = 0, quotes = 0;
    while (true) {
        const char* const from = buffer_.data() + begin_;
        const void* const found = std::memchr(from + looked, '\n', end_ - begin_ - looked);
        const std::size_t stop =
            found ? static_cast<std::size_t>(static_cast<const char*>(found) - from) : end_ - begin_;
        quotes += static_cast<std::size_t>(std::count(from + looked, from + stop, '"'));
        looked = stop;
        if (found && quotes % 2 == 1) {
            ++looked;  // a line end inside a quoted cell
            continue;
        }
        if (!found && read_more()) continue;
        if (!found && looked == 0) return false;
        line_ = next_line_;
        if (quotes % 2 == 1)
            throw data_error(path() + " line " + std::to_string(line_) +
                             ": expected a closing quote, found none");
        quoted = quotes > 0;
        record_ = begin_;
        record_end_ = begin_ + looked;
        next_line_ +=
            1 + (quoted ? std::count(buffer_.data() + record_, buffer_.data() + record_end_, '\n') : 0);
        begin_ = std::min(record_end_ + 1, end_);
        return true;
    }
}

bool CsvReader::next(std::vector<std::string_view>& cells) {
    cells.clear();
    bool quoted = false;
    while (find_record(quoted)) {
        char* const begin = buffer_.data() + record_;
        char* end = buffer_.data() + record_end_;
        if (end > begin && end[-1] == '\r') --end;
        const std::string_view record(begin, static_cast<std::size_t>(end - begin));
        if (trim(record).empty()) continue;
        if (separator_ == '\0') separator_ = most_frequent_separator(record);
        if (quoted)
            split_quoted(begin, end, cells);
        else
            split_plain(record, cells);
        return true;
    }
    return false;
}

void CsvReader::split_plain(std::string_view record, std::vector<std::string_view>& cells) const {
    if (separator_ == ' ') {
        for (std::size_t at = 0; (at = record.find_first_not_of(" \t", at)) != std::string_view::npos;) {
            const std::size_t stop = std::min(record.find_first_of(" \t", at), record.size());
            cells.push_back(record.substr(at, stop - at));
            at = stop;
        }
        return;
    }
    const char* at = record.data();
    const char* const end = at + record.size();
    while (const void* found = std::memchr(at, separator_, static_cast<std::size_t>(end - at))) {
        const char* const stop = static_cast<const char*>(found);
        cells.emplace_back(at, static_cast<std::size_t>(stop - at));
        at = stop + 1;
    }
    cells.emplace_back(at, static_cast<std::size_t>(end - at));
}

/// Doubled quotes are undone in place.
void CsvReader::split_quoted(char* at, char* end, std::vector<std::string_view>& cells) const {
    const auto separates = [&](char c) { return c == separator_ || (separator_ == ' ' && blank(c)); };
    while (true) {
        while (at < end && blank(*at) && (separator_ == ' ' || !separates(*at))) ++at;
        if (at == end && separator_ == ' ') return;
        char *cell = at, *out = at;
        if (at < end && *at == '"') {
            out = cell = ++at;
            while (at < end && (*at != '"' || (at + 1 < end && at[1] == '"'))) {
                at += *at == '"' ? 1 : 0;
                *out++ = *at++;
            }
            ++at;
            while (at < end && blank(*at) && !separates(*at)) ++at;
            if (at < end && !separates(*at))
                throw data_error(path() + " line " + std::to_string(line_) +
                                 ": expected a separator after a closing quote, found '" +
                                 std::string(1, *at) + "'");
        } else {
            while (at < end && !separates(*at)) ++at;
            out = at;
        }
        cells.emplace_back(cell, static_cast<std::size_t>(out - cell));
        if (at >= end) return;
        ++at;
    }
}

}  // namespace trireme
