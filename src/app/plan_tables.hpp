// What `info --memory` and `plan` say of ranks that are not there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/rehearsal.hpp"

namespace trireme::app {

/// A rank with all layers of its stage, or its part of them: the first of the data group, which has the most
/// lanes; the others have as much, or less.
struct Place {
    int stage = 0, tensor = 0;
    Rehearsal rehearsal;
};

/// --ranks, or `otherwise`. @throws Error (bad_usage) on what is no number of ranks.
std::int64_t ranks_option(const std::string& text, std::int64_t otherwise);

/// Every place of the mesh, stage by stage.
std::vector<Place> places_of(Runtime& runtime, const Config& config, const DataFacts& data,
                             const MeshShape& mesh);

/// "512 ranks: data 32 x pipeline 4 x tensor 4, ..."
std::string mesh_text(const MeshShape& mesh, const Rehearsal& any);
std::string memory_table(const std::vector<Place>& places);
std::string traffic_table(const std::vector<Place>& places);
/// The same as objects: {"stage", "tensor", "memory": {...}, "traffic": [...]}.
nlohmann::ordered_json places_json(const std::vector<Place>& places);

/// `info --memory`: the text for rank 0 to print.
std::string describe_memory(Runtime& runtime, const Config& config, std::int64_t ranks, bool json);

}  // namespace trireme::app
