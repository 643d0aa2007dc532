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

/// First loss to 1e-6, weights after ten steps to `tolerance`, every sample counted once, the same norm.
void require_like_one_rank(const Run& run, const std::vector<Grid>& grids, double tolerance = 1e-5);

}  // namespace trireme::testing
