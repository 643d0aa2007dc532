#include "trireme/train/metrics.hpp"

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

std::string path_in(const std::string& run_dir) {
    return run_dir + "/metrics.jsonl";
}

std::string utc_now() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text;
}

}  // namespace

MetricsFile::MetricsFile(const std::string& run_dir) {
    if (run_dir.empty()) return;
    file_.reset(std::fopen(path_in(run_dir).c_str(), "a"));
    if (!file_) throw failure(path_in(run_dir) + ": cannot be opened for writing");
}

void MetricsFile::write(const std::string& line) {
    if (!file_) return;
    if (std::fputs((line + "\n").c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
        throw failure("metrics.jsonl: cannot be written; is the disk full?");
}

void MetricsFile::start(const StartEvent& e) {
    if (!file_) return;
    Json json{{"event", "start"},
              {"version", e.version},
              {"time", utc_now()},
              {"ranks", e.ranks},
              {"threads", e.threads},
              {"lanes", e.lanes},
              {"parameters", e.parameters},
              {"samples", e.samples},
              {"steps_per_epoch", e.steps_per_epoch},
              {"step", e.step}};
    if (!e.resumed_from.empty()) json["resumed_from"] = e.resumed_from;
    write(json.dump());
}

void MetricsFile::step(const StepEvent& e) {
    if (!file_) return;
    write(Json{{"event", "step"},
               {"step", e.step},
               {"epoch", e.epoch},
               {"loss", e.loss},
               {"lr", e.lr},
               {"grad_norm", e.gradient_norm},
               {"scale", e.scale},
               {"skipped", e.skipped},
               {"samples", e.samples},
               {"samples_per_s", e.samples_per_s},
               {"communication_s", e.communication_s},
               {"input_wait_s", e.input_wait_s}}
              .dump());
}

void MetricsFile::valid(std::int64_t step, std::int64_t epoch, const EvalResult& result) {
    if (!file_) return;
    Json json{{"event", "valid"}, {"step", step}, {"epoch", epoch}, {"loss", result.loss}};
    if (result.has_accuracy)
        json["accuracy"] = result.accuracy;
    else
        json["error"] = result.error;
    json["count"] = result.count;
    write(json.dump());
}

void MetricsFile::checkpoint(const SavedCheckpoint& saved) {
    if (!file_) return;
    write(Json{{"event", "checkpoint"},
               {"path", saved.path},
               {"bytes", static_cast<std::int64_t>(saved.bytes)},
               {"seconds", saved.seconds}}
              .dump());
}

void MetricsFile::profile(const std::vector<RankTimes>& ranks) {
    if (!file_) return;
    Json json{{"event", "profile"}, {"ranks", Json::array()}};
    for (const RankTimes& times : ranks) {
        Json rank;
        for (int i = 0; i < activities; ++i)
            rank[name_of(static_cast<Activity>(i)) + "_s"] = times.activities[static_cast<std::size_t>(i)];
        rank["hidden_communication_s"] = times.hidden;
        rank["wall_s"] = times.wall;
        json["ranks"].push_back(std::move(rank));
    }
    write(json.dump());
}

void MetricsFile::end(const EndEvent& event) {
    if (!file_) return;
    Json json{{"event", "end"}, {"reason", event.reason}, {"steps", event.steps}};
    json["best"] = event.best ? Json(*event.best) : Json();
    json["seconds"] = event.seconds;
    json["communication_s"] = event.communication_s;
    json["input_wait_s"] = event.input_wait_s;
    if (event.pipeline_bubble) json["pipeline_bubble"] = *event.pipeline_bubble;
    write(json.dump());
}

void MetricsFile::rewind(const std::string& run_dir, std::int64_t step) {
    const std::string path = path_in(run_dir), temporary = path + ".tmp";
    std::ifstream in(path);
    if (!in) return;
    {
        std::ofstream out(temporary);
        for (std::string line; std::getline(in, line);) {
            const Json json = Json::parse(line, nullptr, false);
            if (json.is_object() && json.value("step", std::int64_t{0}) <= step) out << line << '\n';
        }
        out.flush();
        if (!out) throw failure(temporary + ": cannot be written");
    }
    std::filesystem::rename(temporary, path);
}

}  // namespace trireme
