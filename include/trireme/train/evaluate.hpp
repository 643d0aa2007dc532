// What a saved model makes of a data set: its loss and accuracy, or its outputs.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

/// Every sample counted exactly once at any number of ranks.
struct EvalResult {
    double loss = 0;
    std::int64_t count = 0;
    bool has_accuracy = false;  ///< classification; otherwise `error` is the mean absolute error
    double accuracy = 0, error = 0;
};

/// `config` supplies the data keys (x, y, cache, prefetch) and batch; model and normalisation come from the
/// checkpoint. In place of a checkpoint a .safetensors file may stand, whose model `config` then describes.
/// Collective. @throws Error (bad_data) when the data do not fit the model.
EvalResult evaluate_checkpoint(Runtime& runtime, const Config& config, const std::string& checkpoint,
                               const std::string& data);

/// Writes /output [n, outputs] f32 and, for classification, /prediction [n] i32, in the order of the input;
/// for windows of tokens [n, context, outputs] and [n, context]. Returns the number of rows. Collective.
std::int64_t predict_checkpoint(Runtime& runtime, const Config& config, const std::string& checkpoint,
                                const std::string& data, const std::string& output);

}  // namespace trireme
