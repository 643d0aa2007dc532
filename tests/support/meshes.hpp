#pragma once
// The same small runs on many meshes: what every form of parallelism is held against.

#include <string>
#include <vector>

#include "support/runs.hpp"

namespace trireme::testing {

/// A transformer of two blocks on bytes of a text, ten steps in two lanes, with dropout and clipping.
Run tiny_gpt(const TempDir& folder);
/// Clusters of small images and the given model keys, ten steps in two lanes.
Run tiny_images(const TempDir& folder, const Keys& model);

/// A mesh, and keys that belong to it.
struct Grid {
    int ranks, tensor = 1, pipeline = 1;
    Keys keys{};
};

/// parallel.tensor, parallel.pipeline, and the keys that belong to it.
Keys keys_of(const Grid& grid);

/// A part of a run on one mesh: up to a step.
struct Leg {
    std::string until;
    Grid grid;
};
/// Ten steps in legs, each resumed from the one before, come to what they come to on one rank; returns the
/// run in legs. For Adam, whose steps on small gradients amplify rounding.
Run require_goes_on(const Run& run, const std::vector<Leg>& legs);

/// First loss to 1e-6, weights after ten steps to `tolerance`, every sample counted once, the same norm.
void require_like_one_rank(const Run& run, const std::vector<Grid>& grids, double tolerance = 1e-5);

}  // namespace trireme::testing
