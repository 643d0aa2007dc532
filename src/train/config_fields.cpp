#include "train/config_fields.hpp"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.hpp"

namespace trireme::fields {
namespace {

std::string text_of(const Bounds& bounds) {
    const std::string least = (bounds.least_excluded ? "above " : "at least ") + to_text(bounds.least);
    return std::isfinite(bounds.below) ? least + " and below " + to_text(bounds.below) : least;
}

std::string joined(const std::vector<std::string>& names) {
    std::string all;
    for (std::size_t i = 0; i < names.size(); ++i)
        all += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    return all;
}

bool within(double number, const Bounds& bounds) {
    return std::isfinite(number) && number < bounds.below &&
           (bounds.least_excluded ? number > bounds.least : number >= bounds.least);
}

}  // namespace

void refuse(const std::string& key, const std::string& value, const std::string& expected) {
    throw usage_error(key + "=" + value + ": expected " + expected);
}

std::int64_t integer_from(const std::string& key, const std::string& value, std::int64_t least,
                          std::int64_t most, const std::string& word) {
    const auto number = parse_int(value);
    if (!number || *number < least || *number > most) {
        const bool any = least == std::numeric_limits<std::int64_t>::min();
        refuse(key, value,
               (word.empty() ? "" : word + " or ") +
                   (any ? "an integer" : "an integer, at least " + std::to_string(least)));
    }
    return *number;
}

double real_from(const std::string& key, const std::string& value, const Bounds& bounds) {
    const auto number = parse_real(value);
    if (!number || !within(*number, bounds)) refuse(key, value, "a number, " + text_of(bounds));
    return *number;
}

bool bool_from(const std::string& key, const std::string& value) {
    const auto yes = parse_bool(value);
    if (!yes) refuse(key, value, "true or false");
    return *yes;
}

std::string line_from(const std::string& key, const std::string& value) {
    const auto control = [](unsigned char c) { return c < 0x20 && c != '\t'; };
    if (std::any_of(value.begin(), value.end(), control)) refuse(key, value, "a text on one line");
    return std::string(trim(value));
}

std::string choice_from(const std::string& key, const std::string& value,
                        const std::vector<std::string>& built, const std::vector<std::string>& announced) {
    if (std::find(built.begin(), built.end(), value) != built.end()) return value;
    if (std::find(announced.begin(), announced.end(), value) != announced.end())
        throw usage_error(key + "=" + value + ": announced, but not built in this version (expected " +
                          joined(built) + ")");
    refuse(key, value, joined(built));
}

std::vector<std::string> words_of(const std::string& value) {
    std::string blanks = value;
    std::replace_if(
        blanks.begin(), blanks.end(), [](char c) { return c == ',' || c == '\t'; }, ' ');
    std::vector<std::string> words = split(blanks, ' ');
    std::erase(words, "");
    return words;
}

std::vector<std::int64_t> sizes_from(const std::string& key, const std::string& value) {
    std::vector<std::int64_t> sizes;
    for (const std::string& word : words_of(value)) sizes.push_back(parse_int(word).value_or(0));
    if (sizes.empty() || std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 1; }))
        refuse(key, value, "one or more integers, at least 1, such as 512, 256");
    return sizes;
}

std::vector<double> two_fractions_from(const std::string& key, const std::string& value) {
    std::vector<double> numbers;
    for (const std::string& word : words_of(value)) numbers.push_back(parse_real(word).value_or(-1));
    if (numbers.size() != 2 || !within(numbers[0], below_one) || !within(numbers[1], below_one))
        refuse(key, value, "two numbers, at least 0 and below 1, such as 0.9, 0.999");
    return numbers;
}

std::string text_of(const Every& every) {
    if (every.epochs > 0) return std::to_string(every.epochs) + (every.epochs == 1 ? " epoch" : " epochs");
    if (every.steps > 0) return std::to_string(every.steps) + (every.steps == 1 ? " step" : " steps");
    if (every.minutes > 0) return to_text(every.minutes) + (every.minutes == 1 ? " minute" : " minutes");
    return "never";
}

Every every_from(const std::string& key, const std::string& value, bool with_minutes) {
    if (value == "never") return {};
    const std::vector<std::string> words = words_of(value);
    if (words.size() == 2) {
        const auto count = parse_int(words[0]);
        const auto minutes = parse_real(words[0]);
        const std::string& unit = words[1];
        if ((unit == "epoch" || unit == "epochs") && count && *count > 0) return {.epochs = *count};
        if ((unit == "step" || unit == "steps") && count && *count > 0) return {.steps = *count};
        if (with_minutes && (unit == "minute" || unit == "minutes") && minutes && std::isfinite(*minutes) &&
            *minutes > 0)
            return {.minutes = *minutes};
    }
    refuse(key, value,
           with_minutes ? "1 epoch, 500 steps, 10 minutes (or other numbers), or never"
                        : "1 epoch, 500 steps (or other numbers), or never");
}

}  // namespace trireme::fields
