#include "app/run_record.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "trireme/base/error.hpp"
#include "trireme/train/config.hpp"

namespace trireme::app {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

/// A finite number, or unknown: null is what NaN becomes in JSON. What no run can give would only spoil the
/// axes.
double number(const Json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number()) return unknown;
    const auto value = found->get<double>();
    return std::fabs(value) < 1e300 ? value : unknown;
}

std::string text(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : "";
}

double or_zero(double value) {
    return std::isfinite(value) ? value : 0;
}

/// Takes the lines one after the other.
class Reader {
public:
    explicit Reader(RunRecord& run) : run_(run) {}

    /// False where the line says nothing that can be used.
    bool take(const Json& json) {
        const std::string event = text(json, "event");
        if (event == "start") return start(json);
        if (event == "step") return step(json);
        if (event == "valid") return valid(json);
        if (event == "end") return end(json);
        return !event.empty();  // others are for others
    }

private:
    bool start(const Json& json) {
        ++run_.starts;
        run_.ranks = number(json, "ranks");
        run_.threads = number(json, "threads");
        run_.parameters = number(json, "parameters");
        run_.ended.clear();
        if (run_.starts == 1) last_step_ = or_zero(number(json, "step"));
        return true;
    }

    bool step(const Json& json) {
        const double at = number(json, "step");
        if (std::isnan(at)) return false;
        run_.loss.push_back({at, number(json, "loss")});
        run_.lr.push_back({at, number(json, "lr")});
        run_.gradient_norm.push_back({at, number(json, "grad_norm")});
        run_.rate.push_back({at, number(json, "samples_per_s")});
        run_.steps = std::max(run_.steps, at);
        run_.epochs = std::max(run_.epochs, or_zero(number(json, "epoch")));
        run_.skipped = std::max(run_.skipped, or_zero(number(json, "skipped")));
        add_time(json, at);
        return true;
    }

    /// The line's rate is that of all steps since the line before; what was waited is that of its own step,
    /// and stands for all of them.
    void add_time(const Json& json, double at) {
        const double samples = number(json, "samples"), rate = number(json, "samples_per_s");
        const double steps = at - last_step_, taken = samples - last_samples_;
        last_step_ = at;
        last_samples_ = samples;
        if (!(steps > 0) || !(taken > 0) || !(rate > 0)) return;
        const double seconds = taken / rate;
        const double communication =
            std::clamp(steps * or_zero(number(json, "communication_s")), 0.0, seconds);
        const double input =
            std::clamp(steps * or_zero(number(json, "input_wait_s")), 0.0, seconds - communication);
        run_.timed_samples += taken;
        run_.step_seconds += seconds;
        run_.communication_seconds += communication;
        run_.input_seconds += input;
    }

    bool valid(const Json& json) {
        const double at = number(json, "step");
        if (std::isnan(at)) return false;
        run_.valid_loss.push_back({at, number(json, "loss")});
        if (json.contains("accuracy")) run_.valid_accuracy.push_back({at, number(json, "accuracy")});
        if (json.contains("error")) run_.valid_error.push_back({at, number(json, "error")});
        return true;
    }

    bool end(const Json& json) {
        run_.ended = text(json, "reason");
        if (run_.ended.empty()) run_.ended = "ended";
        const double seconds = number(json, "seconds");
        if (!std::isnan(seconds)) run_.seconds = or_zero(run_.seconds) + seconds;
        run_.steps = std::max(run_.steps, or_zero(number(json, "steps")));
        return true;
    }

    RunRecord& run_;
    double last_step_ = 0, last_samples_ = 0;
};

/// Ascending steps; of two lines for one step the later one counts.
void put_in_order(Series& series) {
    std::stable_sort(series.begin(), series.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
    Series kept;
    for (const Point& point : series) {
        if (!kept.empty() && kept.back().x == point.x) kept.pop_back();
        kept.push_back(point);
    }
    series = std::move(kept);
}

void read_metrics(const std::string& path, RunRecord& run) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw data_error(path + ": cannot be read");
    Reader reader(run);
    for (std::string line; std::getline(file, line);) {
        if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
        const Json json = Json::parse(line, nullptr, false);
        if (!json.is_object() || !reader.take(json)) ++run.unreadable_lines;
    }
    for (Series* series : {&run.loss, &run.lr, &run.gradient_norm, &run.rate, &run.valid_loss,
                           &run.valid_accuracy, &run.valid_error})
        put_in_order(*series);
}

void read_config(const std::string& path, RunRecord& run) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        run.config_fault = "no config.ini";
        return;
    }
    std::ostringstream content;
    content << file.rdbuf();
    try {
        for (const auto& [key, value] : parse_ini(content.str(), path)) {
            const auto [entry, is_new] = run.config.emplace(key, value);
            if (!is_new) entry->second += " | " + value;
        }
    } catch (const Error& error) {
        run.config.clear();
        run.config_fault = error.what();
    }
}

}  // namespace

RunRecord read_run(const std::string& dir) {
    RunRecord run;
    run.path = dir;
    const fs::path folder(dir);
    if (!fs::is_regular_file(folder / "metrics.jsonl"))
        throw data_error(dir + ": expected a run directory with metrics.jsonl");
    read_metrics((folder / "metrics.jsonl").string(), run);
    read_config((folder / "config.ini").string(), run);
    return run;
}

void name_runs(std::vector<RunRecord>& runs) {
    std::map<std::string, int> count;
    const auto last_part = [](const RunRecord& run) {
        const fs::path path = fs::path(run.path).lexically_normal();
        const std::string name =
            path.filename().empty() ? path.parent_path().filename().string() : path.filename().string();
        return name.empty() || name == "." || name == ".." ? run.path : name;
    };
    for (const RunRecord& run : runs) ++count[last_part(run)];
    for (RunRecord& run : runs) run.name = count[last_part(run)] == 1 ? last_part(run) : run.path;
}

const Point* best_of(const Series& series, bool largest) {
    const Point* best = nullptr;
    for (const Point& point : series)
        if (std::isfinite(point.y) && (best == nullptr || (largest ? point.y > best->y : point.y < best->y)))
            best = &point;
    return best;
}

}  // namespace trireme::app
