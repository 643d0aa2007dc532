#include "app/chart.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "app/text.hpp"

namespace trireme::app {
namespace {

constexpr double width = 1000, height = 400;  // of the drawing, before it is stretched
constexpr std::size_t most_points = 400;      // of a curve

std::string general(double value, int digits) {
    std::array<char, 40> text{};
    const auto [end, error] =
        std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, digits);
    return error == std::errc{} ? std::string(text.data(), end) : "?";
}

/// "0.05", "12k", "1e-05": short enough for an axis.
std::string tick_text(double value, bool percent) {
    if (percent) return general(100 * value, 6) + " %";
    for (const auto& [unit, suffix] : {std::pair{1e9, "G"}, {1e6, "M"}, {1e3, "k"}})
        if (std::fabs(value) >= 10 * unit) return general(value / unit, 6) + suffix;
    return general(value, 6);
}

/// An axis: where a value lies on it, 0 to 1, and which values are written beside it.
class Axis {
public:
    Axis(double low, double high, bool logarithmic) : low_(low), high_(high), logarithmic_(logarithmic) {
        if (!logarithmic_ && !(high_ > low_)) {
            const double room = low_ == 0 ? 1 : std::fabs(low_) / 10;
            low_ -= room;
            high_ += room;
        }
    }
    double low() const { return low_; }
    double high() const { return high_; }

    double at(double value) const {
        return logarithmic_ ? (std::log(value) - std::log(low_)) / spread() : (value - low_) / (high_ - low_);
    }
    /// A little room above and below.
    void widen() {
        constexpr double part = 0.04;
        const double room = part * (high_ - low_), factor = logarithmic_ ? std::exp(part * spread()) : 1;
        low_ = logarithmic_ ? std::max(low_ / factor, std::numeric_limits<double>::min()) : low_ - room;
        high_ = logarithmic_ ? high_ * factor : high_ + room;
    }
    void begin_at_zero() { low_ = std::min(low_, 0.0); }

    std::vector<double> ticks(int wanted, bool whole) const {
        return logarithmic_ ? powers(wanted) : round_numbers(wanted, whole);
    }

private:
    double spread() const { return std::log(high_) - std::log(low_); }
    std::vector<double> round_numbers(int wanted, bool whole) const {
        const double rough = (high_ - low_) / wanted;
        const double power = std::pow(10, std::floor(std::log10(rough)));
        double step = 10 * power;
        for (const double factor : {5.0, 2.0, 1.0})
            if (1.4 * factor * power >= rough) step = factor * power;
        if (whole) step = std::max(1.0, std::round(step));
        std::vector<double> found;
        for (double i = std::ceil(low_ / step - 1e-9); i * step <= high_ + 1e-9 * step && found.size() < 100;
             ++i)
            found.push_back(i == 0 ? 0 : i * step);  // no -0
        return found;
    }
    /// Powers of ten, not too many; with 2 and 5 between them where there are few.
    std::vector<double> powers(int wanted) const {
        const int first = static_cast<int>(std::floor(std::log10(low_))),
                  last = static_cast<int>(std::ceil(std::log10(high_)));
        const int stride = std::max(1, (last - first) / wanted);
        const bool fill = last - first <= 3;
        std::vector<double> found;
        for (int power = first; power <= last; power += stride)
            for (const double factor : {1.0, 2.0, 5.0}) {
                const double value = factor * std::pow(10, power);
                if ((factor == 1 || fill) && value >= low_ && value <= high_) found.push_back(value);
            }
        return found;
    }

    double low_, high_;
    bool logarithmic_;
};

/// Consecutive points as one: their mean (of rates the harmonic one: what all steps together took) and range.
struct Stretch {
    double x = 0, mean = 0, least = 0, most = 0;
    int count = 0;  ///< 0: a gap
};

std::vector<Stretch> thinned(const Series& points, bool rates) {
    std::vector<Stretch> stretches;
    const std::size_t per = (points.size() + most_points - 1) / most_points;
    for (std::size_t begin = 0; begin < points.size(); begin += per) {
        Stretch stretch;
        for (std::size_t i = begin; i < std::min(points.size(), begin + per); ++i) {
            if (!std::isfinite(points[i].y)) continue;
            const bool first = stretch.count++ == 0;
            stretch.x += points[i].x;
            stretch.mean += rates ? 1 / points[i].y : points[i].y;
            stretch.least = first ? points[i].y : std::min(stretch.least, points[i].y);
            stretch.most = first ? points[i].y : std::max(stretch.most, points[i].y);
        }
        if (stretch.count > 0) {
            stretch.x /= stretch.count;
            stretch.mean = rates ? stretch.count / stretch.mean : stretch.mean / stretch.count;
        }
        stretches.push_back(stretch);
    }
    return stretches;
}

struct Drawing {
    Axis x, y;

    std::string point(double px, double py) const {
        return fixed(width * x.at(px), 1) + " " + fixed(height * (1 - y.at(py)), 1);
    }
};

/// Calls draw(begin, end) for the stretches between gaps.
template <class Draw>
void between_gaps(const std::vector<Stretch>& stretches, Draw draw) {
    for (std::size_t begin = 0; begin < stretches.size();) {
        std::size_t end = begin;
        while (end < stretches.size() && stretches[end].count > 0) ++end;
        if (end > begin) draw(begin, end);
        begin = end + 1;
    }
}

/// `bands`: with the range behind the curve.
std::string curve_svg(const Drawing& drawing, const Curve& curve, const std::vector<Stretch>& stretches,
                      bool bands) {
    const bool dots_fit = curve.dots && stretches.size() <= 60;
    std::string line, band, dots;
    between_gaps(stretches, [&](std::size_t begin, std::size_t end) {
        std::string back;
        bool wide = false;
        for (std::size_t i = begin; i < end; ++i) {
            const Stretch& s = stretches[i];
            line += (i == begin ? "M" : "L") + drawing.point(s.x, s.mean);
            if (dots_fit || end == begin + 1) dots += "M" + drawing.point(s.x, s.mean) + "h0";
            wide = wide || s.most > s.least;
        }
        if (!bands || !wide || end == begin + 1) return;
        for (std::size_t i = begin; i < end; ++i)
            band += (i == begin ? "M" : "L") + drawing.point(stretches[i].x, stretches[i].most);
        for (std::size_t i = end; i-- > begin;)
            band += "L" + drawing.point(stretches[i].x, stretches[i].least);
        band += "Z";
    });
    const std::string colour =
        "c" + std::to_string(curve.run % 8) + (curve.run / 8 % 2 == 1 ? " dashed" : "");
    std::string svg;
    if (!band.empty()) svg += "<path class=\"band " + colour + "\" d=\"" + band + "\"/>";
    svg += "<path class=\"line " + colour + (curve.label == "training" ? " thin" : "") + "\" d=\"" + line +
           "\"/>";
    if (!dots.empty()) svg += "<path class=\"dots " + colour + "\" d=\"" + dots + "\"/>";
    return svg + "\n";
}

/// What the script shows beside the pointer.
std::string curve_data(const Curve& curve, const std::vector<Stretch>& stretches) {
    std::string xs, ys;
    for (const Stretch& stretch : stretches) {
        if (stretch.count == 0) continue;
        xs += (xs.empty() ? "" : ",") + general(stretch.x, 9);
        ys += (ys.empty() ? "" : ",") + general(stretch.mean, 5);
    }
    return "{\"run\":" + std::to_string(curve.run) + ",\"label\":\"" + curve.label + "\",\"x\":[" + xs +
           "],\"y\":[" + ys + "]}";
}

std::string labels(const Axis& axis, const std::vector<double>& ticks, const char* side, bool percent) {
    std::string html;
    for (const double tick : ticks)
        html += std::string("<span style=\"") + side + ":" + fixed(100 * axis.at(tick), 2) + "%\">" +
                tick_text(tick, percent) + "</span>";
    return html;
}

}  // namespace

std::string escaped(const std::string& text) {
    std::string html;
    for (const char c : text) {
        switch (c) {
            case '&':
                html += "&amp;";
                break;
            case '<':
                html += "&lt;";
                break;
            case '>':
                html += "&gt;";
                break;
            case '"':
                html += "&quot;";
                break;
            case '\'':
                html += "&#39;";
                break;
            default:
                if (static_cast<unsigned char>(c) >= 32 || c == '\t' || c == '\n') html += c;
        }
    }
    return html;
}

std::string short_number(double value) {
    if (!std::isfinite(value)) return "–";
    const double magnitude = std::fabs(value);
    if (magnitude >= 1e4 && magnitude < 1e15) return grouped(std::llround(value));
    return general(value, 4);
}

std::string chart_html(const Chart& chart) {
    double low = INFINITY, high = -INFINITY, first = INFINITY, last = -INFINITY;
    for (const Curve& curve : chart.curves)
        for (const Point& point : curve.points) {
            if (!std::isfinite(point.y)) continue;
            low = std::min(low, point.y);
            high = std::max(high, point.y);
            first = std::min(first, point.x);
            last = std::max(last, point.x);
        }
    if (!(low <= high)) return "";
    const bool logarithmic = !chart.from_zero && !chart.percent && low > 0 && high / low > 30;
    Drawing drawing{Axis(first, last, false), Axis(low, high, logarithmic)};
    drawing.y.widen();
    if (chart.from_zero) drawing.y.begin_at_zero();

    const std::vector<double> x_ticks = drawing.x.ticks(5, true), y_ticks = drawing.y.ticks(5, false);
    // The ranges of many curves would hide each other.
    const auto lines =
        std::count_if(chart.curves.begin(), chart.curves.end(), [](const Curve& c) { return !c.dots; });
    std::string grid, curves, data;
    for (const double tick : y_ticks) {
        const std::string at = fixed(height * (1 - drawing.y.at(tick)), 1);
        grid += "M0 " + at + "H1000";
    }
    for (const Curve& curve : chart.curves) {
        const std::vector<Stretch> stretches = thinned(curve.points, chart.rates);
        if (std::none_of(stretches.begin(), stretches.end(), [](const Stretch& s) { return s.count > 0; }))
            continue;
        curves += curve_svg(drawing, curve, stretches, lines <= 4);
        data += (data.empty() ? "" : ",") + curve_data(curve, stretches);
    }
    return "<section class=\"card\"><h2>" + chart.title + "</h2><p class=\"hint\">" + chart.hint +
           (logarithmic ? (chart.hint.empty() ? "" : "; ") + std::string("logarithmic") : "") +
           "</p>\n<div class=\"plot\" data-first=\"" + general(drawing.x.low(), 12) + "\" data-last=\"" +
           general(drawing.x.high(), 12) + "\" data-percent=\"" + (chart.percent ? "1" : "") +
           "\"><div class=\"y\">" + labels(drawing.y, y_ticks, "bottom", chart.percent) +
           "</div><div class=\"area\"><svg viewBox=\"0 0 1000 400\" preserveAspectRatio=\"none\" "
           "role=\"img\" aria-label=\"" +
           chart.title + " over steps\"><path class=\"grid\" d=\"" + grid + "\"/>\n" + curves +
           "</svg><i class=\"cross\"></i></div><div class=\"x\">" +
           labels(drawing.x, x_ticks, "left", false) + "</div><script type=\"application/json\">[" + data +
           "]</script></div></section>\n";
}

}  // namespace trireme::app
