// Weights from elsewhere: those that a fresh run starts from (run.init_from), and those of a safetensors file
// that is evaluated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/safetensors.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/param/arena.hpp"
#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

class Ops;

/// What a file of weights says of the model that they belong to.
struct WeightSource {
    std::string path;               ///< a safetensors file or a checkpoint
    std::string normalize{};        ///< data.normalize of the run that they come from; empty: not known
    Normalization normalization{};  ///< and what came of it
    std::int64_t outputs = 0;       ///< classes, or values
};

/// One rank reads; collective. `layers`: the lines of the model, presets written out. @throws Error
/// (bad_data, all ranks) naming the file when it is missing or damaged.
WeightSource read_weight_source(Communicator& comm, const std::string& path,
                                const std::vector<std::string>& layers);

/// How the inputs of these weights are normalised: as they have learned, where the configuration says the
/// same, else anew from the statistics of `set`; a difference is warned of. Collective.
Normalization normalization_for(Runtime& runtime, const Config& config, const WeightSource& source,
                                const DatasetLayout& set);

/// Fills the column of weights with what this rank holds of each parameter. 16-bit types are widened.
/// Collective.
/// @throws Error (bad_data, all ranks) naming each tensor that is missing, superfluous, or of another shape
/// or type, before anything is read.
void load_weights(Communicator& comm, Device& device, Ops& ops, const WeightSource& source,
                  const std::vector<std::string>& layers, const ParameterTable& table, Arena& arena);

// The normalisation as it goes along in a safetensors file.
void put_normalization(SafetensorsMetadata& metadata, const std::string& normalize,
                       const Normalization& normalization);

}  // namespace trireme
