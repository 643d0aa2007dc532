#include "app/report_page.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "app/chart.hpp"
#include "app/text.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/train/config.hpp"

namespace trireme::app {
namespace {

using Runs = std::vector<RunRecord>;

std::string key_of(std::size_t run) {
    return "<i class=\"key c" + std::to_string(run % 8) + (run / 8 % 2 == 1 ? " dashed" : "") + "\"></i>";
}

/// A name that may be broken after these marks.
std::string with_breaks(const std::string& name, const std::string& marks = "_-/") {
    std::string html;
    for (const char c : name)
        html += escaped(std::string(1, c)) + (marks.find(c) != std::string::npos ? "<wbr>" : "");
    return html;
}

std::string legend(const Runs& runs) {
    std::string html = runs.size() > 1 ? "<ul class=\"legend\">" : "<ul class=\"legend\" hidden>";
    for (std::size_t i = 0; i < runs.size(); ++i)
        html += "<li title=\"" + escaped(runs[i].path) + "\">" + key_of(i) + "<span>" +
                escaped(runs[i].name) + "</span></li>";
    return html + "</ul>\n";
}

std::string state_of(const RunRecord& run) {
    if (run.ended.empty()) return run.starts == 0 ? "–" : "not ended";
    std::string words = run.ended;
    std::replace(words.begin(), words.end(), '_', ' ');
    return escaped(words);
}

/// A column of the table of best values: for each run a number to compare by, and its text.
struct Best {
    std::string head;
    bool largest = true;
    std::vector<double> values{};
    std::vector<std::string> texts{};
};

Best best_column(const Runs& runs, const std::string& head, Series RunRecord::*series, bool largest,
                 bool parts) {
    Best column{head, largest};
    for (const RunRecord& run : runs) {
        const Point* best = best_of(run.*series, largest);
        column.values.push_back(best != nullptr ? best->y : unknown);
        column.texts.push_back(best == nullptr ? "–"
                                               : (parts ? percent(best->y) : short_number(best->y)) +
                                                     " <small>at " + short_number(best->x) + "</small>");
    }
    return column;
}

std::string best_values(const Runs& runs) {
    std::vector<Best> columns;
    const auto plain = [&](const std::string& head, auto text_of) {
        Best column{head};
        for (const RunRecord& run : runs) {
            column.values.push_back(unknown);
            column.texts.push_back(text_of(run));
        }
        columns.push_back(std::move(column));
    };
    columns.push_back(best_column(runs, "best accuracy", &RunRecord::valid_accuracy, true, true));
    columns.push_back(best_column(runs, "least error", &RunRecord::valid_error, false, false));
    columns.push_back(best_column(runs, "least validation loss", &RunRecord::valid_loss, false, false));
    columns.push_back(best_column(runs, "least training loss", &RunRecord::loss, false, false));
    Best rate{"samples/s"};
    for (const RunRecord& run : runs) {
        rate.values.push_back(run.step_seconds > 0 ? run.timed_samples / run.step_seconds : unknown);
        rate.texts.push_back(short_number(rate.values.back()));
    }
    columns.push_back(std::move(rate));
    plain("time",
          [](const RunRecord& run) { return std::isnan(run.seconds) ? "–" : duration_text(run.seconds); });
    plain("steps", [](const RunRecord& run) { return short_number(run.steps); });
    plain("epochs", [](const RunRecord& run) { return short_number(run.epochs); });
    plain("skipped", [](const RunRecord& run) { return run.skipped > 0 ? short_number(run.skipped) : "–"; });
    plain("ranks × threads",
          [](const RunRecord& run) { return short_number(run.ranks) + " × " + short_number(run.threads); });
    plain("parameters", [](const RunRecord& run) { return short_number(run.parameters); });
    plain("ended", state_of);

    // A column that nobody has a value in says nothing.
    std::erase_if(columns, [](const Best& column) {
        return std::all_of(column.texts.begin(), column.texts.end(),
                           [](const std::string& text) { return text == "–" || text == "– × –"; });
    });
    std::string html =
        "<section class=\"card\"><h2>Best values</h2><div class=\"scroll\"><table><tr><th>run</th>";
    for (const Best& column : columns) html += "<th>" + column.head + "</th>";
    html += "</tr>\n";
    for (std::size_t i = 0; i < runs.size(); ++i) {
        html += "<tr><td class=\"name\">" + key_of(i) + " " + with_breaks(runs[i].name) + "</td>";
        for (const Best& column : columns) {
            const bool best = runs.size() > 1 && std::isfinite(column.values[i]) &&
                              std::none_of(column.values.begin(), column.values.end(), [&](double other) {
                                  return column.largest ? other > column.values[i] : other < column.values[i];
                              });
            html += std::string("<td") + (best ? " class=\"best\"" : "") + ">" + column.texts[i] + "</td>";
        }
        html += "</tr>\n";
    }
    return html + "</table></div></section>\n";
}

std::string shares(const Runs& runs) {
    std::string rows;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const RunRecord& run = runs[i];
        if (!(run.step_seconds > 0)) continue;
        const double communication = run.communication_seconds / run.step_seconds,
                     input = run.input_seconds / run.step_seconds, rest = 1 - communication - input;
        double at = 0;
        std::string bar;
        for (const auto& [part, kind] :
             {std::pair{communication, "communication"}, {input, "input"}, {rest, "rest"}}) {
            bar += std::string("<rect class=\"") + kind + "\" x=\"" + fixed(100 * at, 3) + "%\" width=\"" +
                   fixed(100 * std::max(part, 0.0), 3) + "%\" height=\"100%\"/>";
            at += part;
        }
        rows += "<div>" + key_of(i) + " " + with_breaks(run.name) +
                "</div><svg role=\"img\" aria-label=\"shares of time\">" + bar + "</svg><p>communication " +
                percent(communication) + ", input " + percent(input) + ", rest " + percent(rest) + "</p>\n";
    }
    if (rows.empty()) return "";
    return "<section class=\"card\"><h2>Where the time of the steps goes</h2><p class=\"hint\">"
           "<i class=\"swatch communication\"></i>communication that nothing hides<i class=\"swatch "
           "input\"></i>waiting "
           "for input<i class=\"swatch rest\"></i>the rest</p><div class=\"shares\">" +
           rows + "</div></section>\n";
}

std::string curves(const Runs& runs) {
    struct Source {
        Series RunRecord::*series;
        const char* label = "";
        bool dots = false;
    };
    const auto chart = [&](Chart description, const std::vector<Source>& sources) {
        for (std::size_t i = 0; i < runs.size(); ++i)
            for (const Source& source : sources)
                if (!(runs[i].*source.series).empty())
                    description.curves.push_back({i, source.label, source.dots, runs[i].*source.series});
        return chart_html(description);
    };
    const bool validated =
        std::any_of(runs.begin(), runs.end(), [](const RunRecord& run) { return !run.valid_loss.empty(); });
    return "<div class=\"cards wide\">\n" +
           chart({"Loss", validated ? "thin: training, with dots: validation" : "training"},
                 {{&RunRecord::loss, "training"}, {&RunRecord::valid_loss, "validation", true}}) +
           chart({.title = "Accuracy", .hint = "validation", .percent = true},
                 {{&RunRecord::valid_accuracy, "", true}}) +
           chart({"Mean absolute error", "validation"}, {{&RunRecord::valid_error, "", true}}) +
           chart({.title = "Learning rate", .hint = "of each step", .from_zero = true}, {{&RunRecord::lr}}) +
           chart({"Gradient norm", "before clipping"}, {{&RunRecord::gradient_norm}}) +
           chart({.title = "Throughput", .hint = "samples per second", .from_zero = true, .rates = true},
                 {{&RunRecord::rate}}) +
           shares(runs) + "</div>\n";
}

/// The value a run has for a key: its own, or the default of this version. Nothing where it has no
/// configuration.
const std::string* setting(const RunRecord& run, const std::string& key) {
    if (run.config.empty()) return nullptr;
    if (const auto found = run.config.find(key); found != run.config.end()) return &found->second;
    for (const ConfigKey& known : config_keys())
        if (known.key == key) return &known.fallback;
    return nullptr;
}

/// All keys, those of this version in its order, then others.
std::vector<std::string> all_keys(const Runs& runs) {
    std::vector<std::string> keys;
    std::set<std::string> others;
    for (const RunRecord& run : runs)
        for (const auto& [key, value] : run.config) others.insert(key);
    for (const ConfigKey& known : config_keys())
        if (others.erase(known.key) > 0) keys.push_back(known.key);
    keys.insert(keys.end(), others.begin(), others.end());
    std::erase(keys, "run.dir");  // says who a run is, not how
    return keys;
}

std::string differences(const Runs& runs) {
    const bool alone = runs.size() == 1;
    std::string rows;
    for (const std::string& key : all_keys(runs)) {
        std::set<std::string> values;
        for (const RunRecord& run : runs)
            if (const std::string* value = setting(run, key)) values.insert(*value);
        if (alone) {
            RunRecord defaults;
            defaults.config["run.dir"];
            if (const std::string* value = setting(defaults, key)) values.insert(*value);
        }
        if (values.size() < 2) continue;
        rows += "<tr><td>" + with_breaks(key, "._") + "</td>";
        for (const RunRecord& run : runs) {
            const std::string* value = setting(run, key);
            rows += value == nullptr
                        ? "<td class=\"absent\">–</td>"
                        : "<td>" +
                              (value->empty() ? "<span class=\"absent\">(empty)</span>" : escaped(*value)) +
                              "</td>";
        }
        rows += "</tr>\n";
    }
    const std::string head =
        alone ? "Settings other than the defaults" : "Differences between the configurations";
    std::string html = "<section class=\"card wide\"><h2>" + head + "</h2>";
    if (rows.empty()) return html + "<p class=\"hint\">none</p></section>\n";
    html += "<div class=\"scroll\"><table class=\"text\"><tr><th>key</th>";
    for (std::size_t i = 0; i < runs.size(); ++i)
        html += "<th>" + (alone ? "value" : key_of(i) + " " + escaped(runs[i].name)) + "</th>";
    return html + "</tr>\n" + rows + "</table></div></section>\n";
}

std::string notes(const Runs& runs) {
    std::string items;
    for (const RunRecord& run : runs) {
        const auto note = [&](const std::string& text) {
            items += "<li>" + escaped(run.name + ": " + text) + "</li>";
        };
        if (run.loss.empty()) note("no step is in metrics.jsonl");
        if (run.unreadable_lines > 0)
            note(count_text(static_cast<std::int64_t>(run.unreadable_lines), "line") +
                 " of metrics.jsonl could not be read");
        if (!run.config_fault.empty()) note(run.config_fault);
        if (run.starts > 1) note("started " + std::to_string(run.starts) + " times");
    }
    return items.empty() ? "" : "<ul class=\"notes\">" + items + "</ul>\n";
}

}  // namespace

std::string report_html(const Runs& runs) {
    const std::string title =
        runs.size() == 1 ? runs.front().name : count_text(static_cast<std::int64_t>(runs.size()), "run");
    return "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
           "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
           "<meta name=\"generator\" content=\"trireme " +
           escaped(std::string(build_info().version)) + "\"><title>" + escaped(title) +
           " – trireme report</title><style>" + report_style + "</style></head>\n<body><h1>" +
           escaped(title) + "</h1>\n" + legend(runs) + best_values(runs) + curves(runs) + differences(runs) +
           notes(runs) + "<div id=\"tip\"></div><script>" + report_script + "</script></body></html>\n";
}

}  // namespace trireme::app
