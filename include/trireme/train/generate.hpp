// Continues a text with a saved model of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/train/config.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme {

struct GenerateOptions {
    std::vector<std::int32_t> prompt;  ///< at least one token
    std::int64_t tokens = 200;         ///< how many to add
    double temperature = 1;            ///< 0: always the likeliest
    std::int64_t top_k = 0;            ///< only the k likeliest are drawn from; 0: all
    std::uint64_t seed = 1;
};

/// Calls `emit` with each new token. Every rank computes the same. Collective.
/// @throws Error (bad_data, all ranks) when the checkpoint is no model of tokens or a token of the prompt is
/// beyond its vocabulary.
void generate(Runtime& runtime, const Config& config, const std::string& checkpoint,
              const GenerateOptions& options, const std::function<void(std::int32_t)>& emit);

/// Draws from softmax(logits / temperature) over the top_k largest; `uniform` in [0, 1) decides.
std::int32_t draw_token(std::vector<float> logits, double temperature, std::int64_t top_k, double uniform);

}  // namespace trireme
