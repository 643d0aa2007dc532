#pragma once
// Training runs for tests of the program: a configuration file, its run directory, and what a run leaves
// there.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "support/data_files.hpp"
#include "support/process.hpp"

namespace trireme::testing {

// "train.batch" and its value, in the order of the file; model.layer may occur several times.
using Keys = std::vector<std::pair<std::string, std::string>>;

// One line of metrics.jsonl.
struct Event {
    std::string kind;  // "step", "valid", ...
    std::map<std::string, double> numbers;
    std::map<std::string, std::string> texts;

    bool has(const std::string& key) const { return numbers.contains(key); }
    double operator[](const std::string& key) const;  // throws where there is no such number
};

using Tensors = std::map<std::string, std::vector<float>>;

// What a checkpoint holds, read through the product's own HDF5 layer.
struct Checkpoint {
    Tensors weights;                         // "fc1.weight"
    Tensors states;                          // "momentum/fc1.weight"
    std::map<std::string, double> position;  // "updates"
};
Checkpoint read_checkpoint(const std::filesystem::path& path);

bool same_bits(const Tensors& a, const Tensors& b);
double largest_difference(const Tensors& a, const Tensors& b);  // infinite where names or sizes differ
bool all_finite(const Tensors& tensors);

// One line of samples-<rank>.csv.
struct TracedSample {
    std::int64_t step, lane, sample;
    friend auto operator<=>(const TracedSample&, const TracedSample&) = default;
};

class Run {
public:
    // The keys go into <dir>.ini, with run.dir = dir.
    Run(const std::filesystem::path& dir, Keys keys);

    // The same with these keys changed or added; its own directory, where one is given.
    Run with(const Keys& changes) const;
    Run at(const std::filesystem::path& dir) const;

    // 0 ranks: one process without a launcher.
    Result train(int ranks = 0, const std::vector<std::string>& more = {}) const;
    Process start(int ranks = 0, const std::vector<std::string>& more = {}) const;
    // Trains, fails the test when the exit status is another one, and returns the end of the run.
    Result expect(int status, int ranks = 0, const std::vector<std::string>& more = {}) const;
    Checkpoint finish(int ranks = 0) const;

    const std::filesystem::path& dir() const { return dir_; }
    const Keys& keys() const { return keys_; }
    std::vector<std::string> arguments(const std::vector<std::string>& more = {}) const;  // writes the .ini

    std::vector<Event> events(
        const std::string& kind = "") const;  // every line has to be one whole JSON object
    std::vector<double> column(const std::string& kind, const std::string& key) const;
    std::vector<std::int64_t> saved_steps() const;  // of the step checkpoints, ascending; throws without any
    std::int64_t newest_step() const;               // 0 without any
    std::filesystem::path checkpoint_path(std::int64_t step) const;
    std::filesystem::path best_path() const { return dir_ / "checkpoints" / "best.h5"; }
    Checkpoint checkpoint(std::int64_t step) const { return read_checkpoint(checkpoint_path(step)); }
    Checkpoint last() const { return checkpoint(saved_steps().back()); }
    std::vector<TracedSample> trace() const;  // of all ranks, by step and lane; within a lane as it was taken
    bool wait_for_step(Process& process, std::int64_t step) const;  // until its line is in metrics.jsonl

private:
    std::filesystem::path dir_;
    Keys keys_;
};

// What `trireme eval` says: loss, accuracy or error, count.
Event evaluate(int ranks, const std::filesystem::path& checkpoint, const std::string& data,
               const std::vector<std::string>& more = {});

// The exit status of trireme on each rank, whatever the launcher makes of it; -1 where a rank was killed.
std::vector<int> statuses_of_ranks(int ranks, const std::vector<std::string>& args, Result* result = nullptr);

// Samples around the centres of their classes, easily told apart. All values are multiples of 1/64, so that
// every type of real number holds them exactly.
Samples clusters(std::int64_t rows, const Shape& sample, std::int64_t classes, std::uint64_t seed = 1);
// Targets that are linear in x.
Samples linear_targets(std::int64_t rows, std::int64_t features, std::int64_t targets);

// One weight without bias, x = 1, target 1, loss (w - 1)^2, w = 0 at the start, plain SGD with this rate, one
// update an epoch. Saved at the end only.
Keys single_weight(const std::filesystem::path& file, double lr = 0.05);

}  // namespace trireme::testing
