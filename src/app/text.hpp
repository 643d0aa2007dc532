// Numbers and tables for people, the same under every locale.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::app {

/// 0.07123 with 4 digits: "0.0712".
std::string fixed(double value, int digits);
/// 0.97781: "97.78 %".
std::string percent(double fraction);
/// 1234567: "1,234,567".
std::string grouped(std::int64_t value);
std::string joined(const std::vector<std::string>& parts, const std::string& between);

/// Text broken at blanks into lines of at most `width` characters.
std::vector<std::string> wrapped(const std::string& text, std::size_t width);

/// Columns of texts, each as wide as its widest cell.
class Table {
public:
    /// '<' or '>' for each column: aligned to the left or to the right.
    explicit Table(std::string alignment) : alignment_(std::move(alignment)) {}

    void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    /// All rows, each ended by a line break, with `indent` blanks before it.
    std::string text(std::size_t indent = 2) const;

private:
    std::string alignment_;
    std::vector<std::vector<std::string>> rows_;
};

/// To stdout, at once.
void print(const std::string& text);

}  // namespace trireme::app
