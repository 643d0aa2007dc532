// Private to data: records of a CSV file (RFC 4180: quoted cells may hold separators, line ends and doubled
// quotes).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_stream.hpp"

namespace trireme {

class CsvReader {
public:
    /// separator '\0': the most frequent of comma, semicolon and tab in the first record; ' ': any run of
    /// blanks.
    CsvReader(const std::string& path, char separator);

    /// The cells of the next record that is not blank, valid until the next call; false at the end of the
    /// file.
    /// @throws Error (bad_data) naming file and line for quotes that do not match.
    bool next(std::vector<std::string_view>& cells);

    std::int64_t line() const { return line_; }  ///< on which the last record began, from 1
    char separator() const { return separator_; }
    const std::string& path() const { return stream_.path(); }

private:
    bool find_record(bool& quoted);
    bool read_more();
    void split_plain(std::string_view record, std::vector<std::string_view>& cells) const;
    void split_quoted(char* begin, char* end, std::vector<std::string_view>& cells) const;

    ByteStream stream_;
    char separator_;
    std::vector<char> buffer_;
    std::size_t begin_ = 0, end_ = 0;          ///< of the bytes that are read and not yet used
    std::size_t record_ = 0, record_end_ = 0;  ///< the record at hand, without its line end
    std::int64_t line_ = 0, next_line_ = 1;
    bool at_end_ = false;
};

}  // namespace trireme
