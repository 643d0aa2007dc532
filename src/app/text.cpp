#include "app/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme::app {

std::string fixed(double value, int digits) {
    std::array<char, 400> text{};
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, digits);
    return error == std::errc{} ? std::string(text.data(), end) : "?";
}

std::string percent(double fraction) {
    return fixed(100 * fraction, 2) + " %";
}

std::string grouped(std::int64_t value) {
    std::string digits = std::to_string(value);
    const std::int64_t first = value < 0 ? 1 : 0;
    for (auto at = static_cast<std::int64_t>(digits.size()) - 3; at > first; at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return digits;
}

std::string joined(const std::vector<std::string>& parts, const std::string& between) {
    std::string all;
    for (std::size_t i = 0; i < parts.size(); ++i) all += (i == 0 ? "" : between) + parts[i];
    return all;
}

std::vector<std::string> wrapped(const std::string& text, std::size_t width) {
    std::vector<std::string> lines(1);
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string word = text.substr(at, end - at);
        if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
        lines.back() += (lines.back().empty() ? "" : " ") + word;
        at = end + 1;
    }
    return lines;
}

std::string Table::text(std::size_t indent) const {
    std::vector<std::size_t> widths(alignment_.size(), 0);
    for (const auto& row : rows_)
        for (std::size_t i = 0; i < row.size(); ++i) widths.at(i) = std::max(widths[i], row[i].size());

    std::string all;
    for (const auto& row : rows_) {
        std::string line(indent, ' ');
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - row[i].size(), ' ');
            line += (i == 0 ? "" : "  ") + (alignment_[i] == '>' ? padding + row[i] : row[i] + padding);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        all += line + "\n";
    }
    return all;
}

void print(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    // A reader that has had enough (`| head`) is no failure.
    if (!written && errno != EPIPE)
        throw failure("stdout could not be written: " + std::string(std::strerror(errno)));
}

}  // namespace trireme::app
