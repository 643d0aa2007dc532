// metrics.jsonl: one JSON object a line, written by rank 0, flushed line by line. The fields are a contract.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/train/evaluate.hpp"
#include "trireme/train/profile.hpp"

namespace trireme {

struct StartEvent {
    std::string version, resumed_from;  ///< resumed_from: empty for a fresh run
    int ranks = 1, threads = 1;
    std::int64_t lanes = 1, parameters = 0, samples = 0, steps_per_epoch = 0, step = 0;
};

struct StepEvent {
    std::int64_t step = 0, epoch = 0;
    double loss = 0, lr = 0, gradient_norm = 0, scale = 1;
    std::int64_t skipped = 0, samples = 0;
    double samples_per_s = 0;
    double communication_s = 0, input_wait_s = 0;  ///< exposed, in this step
};

struct EndEvent {
    std::string reason;
    std::int64_t steps = 0;
    double seconds = 0;
    std::optional<double> best{};
    double communication_s = 0, input_wait_s = 0;  ///< exposed, of the mean rank
    std::optional<double> pipeline_bubble{};       ///< part of the ranks' time spent waiting for other stages
};

class MetricsFile {
public:
    /// Appends to <run_dir>/metrics.jsonl; with no directory (ranks other than 0) nothing is written.
    explicit MetricsFile(const std::string& run_dir);

    void start(const StartEvent& event);
    void step(const StepEvent& event);
    void valid(std::int64_t step, std::int64_t epoch, const EvalResult& result);
    void checkpoint(const SavedCheckpoint& saved);
    /// Where each rank's time went.
    void profile(const std::vector<RankTimes>& ranks);
    void end(const EndEvent& event);

    /// Drops lines of steps after `step` (they belong to work that is lost and done again) and a cut-off last
    /// line.
    static void rewind(const std::string& run_dir, std::int64_t step);

private:
    void write(const std::string& line);
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace trireme
