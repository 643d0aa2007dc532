// `trireme bench step`: one training step on data in memory, beside its roofline.
#pragma once

#include <string>

#include "app/options.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app {

struct StepBench {
    std::string model = "mlp:784-512-512-10";  ///< mlp:<in>-<hidden>-...-<out>, cnn, resnet18, gpt
    Shape input{1, 28, 28};                    ///< cnn, resnet18
    std::int64_t classes = 10;                 ///< cnn, resnet18
    std::int64_t samples = 32;                 ///< in each lane
    std::int64_t lanes = 1;                    ///< on each rank
};

/// Prints the table on rank 0. Collective.
void bench_step(Runtime& runtime, const Config& config, const StepBench& bench);

/// The model that --model, --input and --classes describe, or for gpt the keys of [model]. @throws Error
/// (bad_usage) naming the option.
struct BenchModel {
    Shape sample;
    std::int64_t classes = 0;
    std::vector<std::string> layers;
    bool tokens = false;  ///< inputs and targets are windows of tokens
};
BenchModel bench_model(const StepBench& bench, const Config& config);

}  // namespace trireme::app
