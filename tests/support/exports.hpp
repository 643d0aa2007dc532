#pragma once
// What the tests of weights out and in have in common.

#include <string>
#include <vector>

#include "support/catch.hpp"
#include "support/meshes.hpp"
#include "support/safetensors.hpp"

namespace trireme::testing {

inline Result run_program(int ranks, const std::vector<std::string>& words, int status = 0) {
    const Result result = trireme::testing::trireme(ranks, words);
    INFO(ranks << " ranks: " << words.front() << "\n" << result.out << result.err);
    REQUIRE(result.status == status);
    return result;
}

inline void export_to(const std::filesystem::path& checkpoint, const std::filesystem::path& output,
                      const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"export", checkpoint.string(), "--output=" + output.string()};
    words.insert(words.end(), more.begin(), more.end());
    run_program(0, words);
}

// Every layer kind of an image model, by number and by name; trained for a moment, so that all statistics
// moved.
inline Run image_run(const TempDir& folder) {
    return tiny_images(folder, {{"model.layer", "conv out=4 kernel=3 padding=1"},
                                {"model.layer", "batchnorm"},
                                {"model.layer", "relu"},
                                {"model.layer", "layernorm"},
                                {"model.layer", "maxpool kernel=2"},
                                {"model.layer", "flatten"},
                                {"model.layer", "linear out=6"},
                                {"model.layer", "tanh"},
                                {"model.layer", "linear out=classes name=head bias=false"},
                                {"data.normalize", "standard"},
                                {"train.ema", "0.9"}});
}

}  // namespace trireme::testing
