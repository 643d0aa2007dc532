// Configurations as INI text.
//   [section]
//   key = value        # a comment: '#' or ';' at the start of a line or after a blank
//   key = "in quotes"  # for values with such marks in them; \" and \\ stand for " and \ .
#include <map>

#include "train/config_table.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

bool is_blank(char c) {
    return c == ' ' || c == '\t';
}
bool is_mark(char c) {
    return c == '#' || c == ';';
}

std::string_view without_comment(std::string_view text) {
    for (std::size_t i = 0; i < text.size(); ++i)
        if (is_mark(text[i]) && (i == 0 || is_blank(text[i - 1]))) return trim(text.substr(0, i));
    return trim(text);
}

/// The content of a quoted value; nothing but a comment may follow it.
std::string unquoted(std::string_view text, const std::string& place) {
    std::string value;
    std::size_t i = 1;
    for (; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\' && i + 1 < text.size()) ++i;
        value += text[i];
    }
    if (i >= text.size()) throw usage_error(place + "the closing quote is missing");
    if (!without_comment(text.substr(i + 1)).empty())
        throw usage_error(place + "text after the closing quote: " + std::string(trim(text.substr(i + 1))));
    return value;
}

IniEntry entry_of(std::string_view line, const std::string& section, int number, const std::string& source) {
    const std::string place = place_in(source, number);
    const std::size_t equals = line.find('=');
    const std::string_view key = trim(line.substr(0, equals));
    if (equals == std::string_view::npos || key.empty())
        throw usage_error(place + "expected [section] or key = value, found: " + std::string(line));
    const std::string_view rest = trim(line.substr(equals + 1));
    const std::string value =
        rest.starts_with('"') ? unquoted(rest, place) : std::string(without_comment(rest));
    return {section.empty() ? std::string(key) : section + "." + std::string(key), value, number};
}

}  // namespace

std::string place_in(const std::string& source, int line) {
    return source + " line " + std::to_string(line) + ": ";
}

std::vector<IniEntry> read_ini(const std::string& text, const std::string& source) {
    std::vector<IniEntry> entries;
    std::string section;
    std::string_view rest = text;
    if (rest.starts_with("\xEF\xBB\xBF")) rest.remove_prefix(3);  // a byte order mark
    for (int number = 1; !rest.empty(); ++number) {
        const std::size_t end = rest.find('\n');
        const std::string_view line = trim(rest.substr(0, end));
        rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
        if (line.empty() || is_mark(line.front())) continue;
        if (line.front() != '[') {
            entries.push_back(entry_of(line, section, number, source));
            continue;
        }
        const std::string_view head = without_comment(line);
        if (head.back() != ']' || trim(head.substr(1, head.size() - 2)).empty())
            throw usage_error(place_in(source, number) + "expected [section], found: " + std::string(line));
        section = trim(head.substr(1, head.size() - 2));
    }
    return entries;
}

std::string ini_value(const std::string& value) {
    const bool plain = trim(value) == value && !value.starts_with('"') && without_comment(value) == value;
    if (plain) return value;
    std::string quoted = "\"";
    for (const char c : value) {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return quoted + '"';
}

std::vector<std::pair<std::string, std::string>> parse_ini(const std::string& text,
                                                           const std::string& source) {
    std::vector<std::pair<std::string, std::string>> pairs;
    for (IniEntry& entry : read_ini(text, source))
        pairs.emplace_back(std::move(entry.key), std::move(entry.value));
    return pairs;
}

}  // namespace trireme
