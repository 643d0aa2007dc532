// Curves over steps as HTML: an SVG drawing that stretches to any width, with labels of ordinary text around
// it.
#pragma once

#include <string>
#include <vector>

#include "app/run_record.hpp"

namespace trireme::app {

/// Markup characters as entities; control characters are left out.
std::string escaped(const std::string& text);
/// "1.234e-05", "0.05213", "12,300": four significant digits.
std::string short_number(double value);

struct Curve {
    std::size_t run = 0;  ///< chooses the colour
    std::string label;    ///< "training", "validation"; empty where there is but one kind
    bool dots = false;    ///< few points, each of which counts
    Series points;
};

struct Chart {
    std::string title, hint;
    std::vector<Curve> curves{};
    bool from_zero = false;  ///< the axis begins at 0
    bool percent = false;    ///< values are parts of 1
    bool rates = false;      ///< values are so much per second
};

/// Long curves are drawn as the mean of as many stretches as can be told apart, with their range behind it. A
/// wide range of positive values gets a logarithmic axis. Empty where no value is finite.
std::string chart_html(const Chart& chart);

}  // namespace trireme::app
