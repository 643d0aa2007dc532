// Numbers from text and numbers to text, the same under every locale.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// The whole text as a number, or nothing. Surrounding blanks are allowed; "1e-3" and "inf" are reals.
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_real(std::string_view text);
/// true/false, yes/no, on/off, 1/0.
std::optional<bool> parse_bool(std::string_view text);

/// The shortest text that reads back as the same value.
std::string to_text(double value);

std::string_view trim(std::string_view text);
/// Parts between separators, trimmed; an empty text has no parts.
std::vector<std::string> split(std::string_view text, char separator);

/// The candidate with the smallest edit distance to `word`, for "did you mean"; empty where none is near.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "2m 05s", "3h 12m", "0.8 s": a duration for a person.
std::string duration_text(double seconds);
/// "1 rank", "3 ranks".
std::string count_text(std::int64_t count, std::string_view noun);
/// "1.4 MB", "312 bytes".
std::string bytes_text(double bytes);

}  // namespace trireme
