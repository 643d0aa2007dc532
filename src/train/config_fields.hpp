// Private to train: makers of table rows, one per type of field. A row is bound to its field by an accessor,
// `[](auto& c) -> auto& { return c.train.batch; }`, which serves for reading and for writing.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "train/config_table.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::fields {

/// Where a value may lie. The upper end is outside.
struct Bounds {
    double least = 0;
    double below = std::numeric_limits<double>::infinity();
    bool least_excluded = false;
};
inline constexpr Bounds not_negative{};
inline constexpr Bounds positive{.least_excluded = true};
inline constexpr Bounds below_one{.below = 1};

// From text. @throws Error (bad_usage) naming key, value and what was expected.
std::int64_t integer_from(const std::string& key, const std::string& value, std::int64_t least,
                          std::int64_t most, const std::string& word = "");
double real_from(const std::string& key, const std::string& value, const Bounds& bounds);
bool bool_from(const std::string& key, const std::string& value);
Every every_from(const std::string& key, const std::string& value, bool with_minutes);
std::string line_from(const std::string& key, const std::string& value);
/// One of `built`; one of `announced` is refused in other words than the rest.
std::string choice_from(const std::string& key, const std::string& value,
                        const std::vector<std::string>& built, const std::vector<std::string>& announced);
/// Numbers between commas or blanks: any count of them, or exactly two.
std::vector<std::int64_t> sizes_from(const std::string& key, const std::string& value);
std::vector<double> two_fractions_from(const std::string& key, const std::string& value);
/// Parts between commas or blanks.
std::vector<std::string> words_of(const std::string& value);
[[noreturn]] void refuse(const std::string& key, const std::string& value, const std::string& expected);

// To text.
std::string text_of(const Every& every);

/// An integer from `least`; `word` (when not empty) is another name of 0.
template <class Field>
ConfigRow integer(const std::string& key, Field field, std::int64_t least, const std::string& help,
                  const std::string& word = "") {
    using Integer = std::remove_cvref_t<std::invoke_result_t<Field, Config&>>;
    constexpr std::int64_t most = sizeof(Integer) < 8 ? std::int64_t{std::numeric_limits<int>::max()}
                                                      : std::numeric_limits<std::int64_t>::max();
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return field(c) == 0 && !word.empty() ? word : std::to_string(field(c)); },
            [=](Config& c, const std::string& value) {
                const std::string number = !word.empty() && value == word ? "0" : value;
                field(c) = static_cast<Integer>(integer_from(key, number, least, most, word));
            }};
}

template <class Field>
ConfigRow real(const std::string& key, Field field, const Bounds& bounds, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return to_text(field(c)); },
            [=](Config& c, const std::string& value) { field(c) = real_from(key, value, bounds); }};
}

template <class Field>
ConfigRow flag(const std::string& key, Field field, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return std::string(field(c) ? "true" : "false"); },
            [=](Config& c, const std::string& value) { field(c) = bool_from(key, value); }};
}

/// Any text on one line.
template <class Field>
ConfigRow text(const std::string& key, Field field, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return field(c); },
            [=](Config& c, const std::string& value) { field(c) = line_from(key, value); }};
}

/// One of the names in `built`.
template <class Field>
ConfigRow choice(const std::string& key, Field field, const std::vector<std::string>& built,
                 const std::string& help, const std::vector<std::string>& announced = {}) {
    return {
        {.key = key, .fallback = "", .help = help},
        [=](const Config& c) { return field(c); },
        [=](Config& c, const std::string& value) { field(c) = choice_from(key, value, built, announced); }};
}

/// A text that `check` (called with key and value) refuses by throwing.
template <class Field>
ConfigRow checked(const std::string& key, Field field,
                  const std::function<void(const std::string&, const std::string&)>& check,
                  const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return field(c); },
            [=](Config& c, const std::string& value) {
                check(key, value);
                field(c) = value;
            }};
}

template <class Field>
ConfigRow every(const std::string& key, Field field, bool with_minutes, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) { return text_of(field(c)); },
            [=](Config& c, const std::string& value) { field(c) = every_from(key, value, with_minutes); }};
}

/// One or more sizes.
template <class Field>
ConfigRow sizes(const std::string& key, Field field, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) {
                std::string all;
                for (const std::int64_t size : field(c))
                    all += (all.empty() ? "" : ", ") + std::to_string(size);
                return all;
            },
            [=](Config& c, const std::string& value) { field(c) = sizes_from(key, value); }};
}

/// Two reals in [0, 1), as Adam's betas are, or auto (none).
template <class Field>
ConfigRow two_fractions(const std::string& key, Field field, const std::string& help) {
    return {{.key = key, .fallback = "", .help = help},
            [=](const Config& c) {
                return field(c).empty() ? "auto" : to_text(field(c).at(0)) + ", " + to_text(field(c).at(1));
            },
            [=](Config& c, const std::string& value) {
                field(c) = value == "auto" ? std::vector<double>{} : two_fractions_from(key, value);
            }};
}

/// A list of lines: each setting adds to it, `a | b` adds two, an empty value clears it.
template <class Field>
ConfigRow lines(const std::string& key, Field field, const std::string& help,
                const std::function<void(const std::string&)>& check = {}) {
    return {{.key = key, .fallback = "", .help = help, .repeated = true},
            [=](const Config& c) {
                std::string all;
                for (const std::string& line : field(c)) all += (all.empty() ? "" : " | ") + line;
                return all;
            },
            [=](Config& c, const std::string& value) {
                const std::vector<std::string> added = split(line_from(key, value), '|');
                if (added.empty()) field(c).clear();
                for (const std::string& line : added) {
                    if (line.empty()) continue;
                    if (check) check(line);
                    field(c).push_back(line);
                }
            }};
}

}  // namespace trireme::fields
