// Checkpoints: one HDF5 file with the whole, unsharded state. Written by all ranks together under a temporary
// name, flushed, checked and renamed; a file that is not whole is never taken for one. Format:
// doc/checkpoints.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/checkpoint/position.hpp"
#include "trireme/comm/communicator.hpp"
#include "trireme/param/arena.hpp"

namespace trireme {

/// What goes along with the arena.
struct CheckpointMeta {
    Position position;
    std::string config;                           ///< resolved configuration, INI text
    std::vector<float> input_shift, input_scale;  ///< normalization of the inputs, per channel; empty: none
    Shape sample;                                 ///< shape of one input
    std::int64_t outputs = 0;                     ///< classes, or width of the target
    std::int64_t samples = 0;                     ///< rows of the training set
    std::string optimizer;                        ///< its name
    std::vector<std::string> state_names;
    bool has_average = false;  ///< the file holds a moving average of the weights
};

struct SavedCheckpoint {
    std::string path;
    std::int64_t step = 0;  ///< steps tried before it
    double bytes = 0;
    double seconds = 0;  ///< that saving took,
    double stall = 0;    ///< and in which training stood still for it
};

/// Smaller parameters than this (4 MiB) are written by rank 0 alone: that costs less than a call of all
/// ranks.
inline constexpr std::int64_t parallel_from_elements_default = std::int64_t{1} << 20;

/// Collective. Parent folders are created. Ranks that hold the same part of a parameter divide the writing
/// evenly; together the parts must make up the whole. The optimizer's states and the average are those of the
/// arena (meta.state_names and has_average are not looked at). @throws Error (failed, all ranks) naming the
/// path when it cannot be written; an older file of the same name is then still there.
SavedCheckpoint save_checkpoint(Communicator& comm, const std::string& path, const ParameterTable& table,
                                const Arena& arena, const CheckpointMeta& meta,
                                std::int64_t parallel_from_elements = parallel_from_elements_default);

/// The meta data alone, e.g. to build the model. Collective: one rank reads, all get it or its error.
/// @throws Error (bad_data, all ranks) naming the file when it is missing, truncated, foreign or of a newer
/// version.
CheckpointMeta read_checkpoint_meta(Communicator& comm, const std::string& path);

/// What of a checkpoint is read. training: weights, optimizer's columns and, where the arena keeps one, the
/// average (which starts from the weights where the file has none). average: the averaged weights, into the
/// place of the weights.
enum class Part { training, weights, average };

/// Fills the arena. Collective; any number of ranks, whatever number wrote the file. @throws Error (bad_data,
/// all ranks) naming the parameter and both shapes when one is missing or differs, and naming parameters in
/// the file that the model lacks.
void load_checkpoint(Communicator& comm, const std::string& path, const ParameterTable& table, Arena& arena,
                     Part part);

/// "checkpoints/step-00000042.h5" in a run directory.
std::string step_checkpoint_path(const std::string& run_dir, std::int64_t step);
std::string best_checkpoint_path(const std::string& run_dir);

/// Step checkpoints of a run directory, the highest step number first, whatever the files' times say.
std::vector<std::string> step_checkpoints(const std::string& run_dir);

/// The newest whole step checkpoint; damaged newer ones are named in `rejected` ("path: why"). Collective;
/// decided once, by one rank.
std::optional<std::string> newest_checkpoint(Communicator& comm, const std::string& run_dir,
                                             std::vector<std::string>& rejected);

/// Removes all but the newest `keep` (at least one) whole step checkpoints and any temporary left-overs of
/// writers that were killed. Damaged files are not counted, and go once they are older than those kept.
/// Collective; one rank does it.
void retain_checkpoints(Communicator& comm, const std::string& run_dir, std::int64_t keep);

}  // namespace trireme
