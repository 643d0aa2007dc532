#include "train/sweep_directory.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "train/run_directory.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

std::string text_of_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

/// What makes two sweeps the same: trials of the same numbers have the same values.
std::string identity(const Config& config) {
    std::string text;
    for (const char* key : {"sweep.method", "sweep.seed", "sweep.halving", "sweep.min_epochs"})
        text += std::string(key) + " = " + get_config(config, key) + "\n";
    for (const std::string& line : config.sweep.params) text += "sweep.param = " + line + "\n";
    return text;
}

TrialRecord record_of(const std::optional<SweepTrial>& trial) {
    if (!trial) return {};
    return {.metrics = trial->metrics, .failed = !trial->failure.empty()};
}

}  // namespace

SweepDirectory::SweepDirectory(std::string path, const Config& config) : path_(std::move(path)) {
    std::error_code error;
    fs::create_directories(path_ + "/trials", error);
    if (error) throw failure("run.dir=" + path_ + ": cannot be created: " + error.message());
    const FileLock lock(path_ + "/.lock", true);
    const std::string file = path_ + "/sweep.txt", mine = identity(config);
    if (!fs::exists(file))
        write_whole(file, mine);
    else if (text_of_file(file) != mine)
        throw usage_error("run.dir=" + path_ +
                          ": holds another sweep (its sweep.txt differs in method, seed, halving, min_epochs "
                          "or param); give this one a directory of its own");
}

std::string SweepDirectory::trial_path(std::int64_t trial) const {
    char name[32];
    std::snprintf(name, sizeof name, "/trials/%05lld", static_cast<long long>(trial));
    return path_ + name;
}

std::optional<SweepTrial> SweepDirectory::read(std::int64_t number) const {
    const std::string path = trial_path(number) + "/result.json";
    if (!fs::exists(path)) return std::nullopt;
    try {
        const Json json = Json::parse(text_of_file(path));
        SweepTrial trial{.number = number,
                         .metrics = json.at("metrics").get<std::vector<double>>(),
                         .epochs = json.at("epochs").get<std::int64_t>(),
                         .steps = json.at("steps").get<std::int64_t>(),
                         .seconds = json.at("seconds").get<double>(),
                         .failure = json.at("failure").get<std::string>(),
                         .done = json.at("done").get<bool>()};
        return trial;
    } catch (const Json::exception&) {
        throw Error(Status::bad_data,
                    path + ": expected the result of a trial; remove it to train the trial again");
    }
}

void SweepDirectory::write(const SweepTrial& trial) const {
    const Json json{{"trial", trial.number}, {"metrics", trial.metrics}, {"epochs", trial.epochs},
                    {"steps", trial.steps},  {"seconds", trial.seconds}, {"failure", trial.failure},
                    {"done", trial.done}};
    fs::create_directories(trial_path(trial.number));
    write_whole(trial_path(trial.number) + "/result.json", json.dump(1) + "\n");
}

std::optional<Claim> SweepDirectory::claim(const Halving& halving, std::vector<TrialRecord>& known,
                                           bool& wait) const {
    const FileLock one_at_a_time(path_ + "/.lock", true);
    for (std::size_t trial = 0; trial < known.size(); ++trial)
        if (!halving.settled(known[trial])) known[trial] = record_of(read(static_cast<std::int64_t>(trial)));
    while (const std::optional<TrialJob> job = halving.next(known)) {
        TrialRecord& record = known[static_cast<std::size_t>(job->trial)];
        fs::create_directories(trial_path(job->trial));
        FileLock lock(trial_path(job->trial) + "/.claim", false);
        if (!lock.held()) {
            record.taken = true;
            continue;
        }
        // Its last trainer may have finished it since it was read.
        const TrialRecord now = record_of(read(job->trial));
        if (now.metrics.size() == record.metrics.size() && now.failed == record.failed)
            return Claim{*job, std::move(lock)};
        record = now;
    }
    wait = halving.may_go_on(known);
    return std::nullopt;
}

std::optional<Claim> SweepDirectory::claim(const Halving& halving, std::int64_t trial) const {
    fs::create_directories(trial_path(trial));
    FileLock lock(trial_path(trial) + "/.claim", false);
    if (!lock.held()) return std::nullopt;
    const std::optional<SweepTrial> found = read(trial);
    if (found && (found->done || !found->failure.empty())) return std::nullopt;
    return Claim{{trial, halving.rungs() - 1}, std::move(lock)};
}

}  // namespace trireme
