// The ways to reduce; see reducer.hpp.
#pragma once

#include "trireme/parallel/reducer.hpp"

namespace trireme {

std::unique_ptr<GradientReducer> make_fast_reducer(CollectiveQueue& queue, Device& device,
                                                   const Sharding& sharding, Arena& arena,
                                                   const ReducerOptions& options);
std::unique_ptr<GradientReducer> make_window_reducer(CollectiveQueue& queue, Device& device,
                                                     const ParameterTable& table, const Sharding& sharding,
                                                     Arena& arena, const ReducerOptions& options);
std::unique_ptr<GradientReducer> make_tree_reducer(Communicator& data, Device& device,
                                                   const ParameterTable& table, const Sharding& sharding,
                                                   Arena& arena, const ReducerOptions& options);

}  // namespace trireme
