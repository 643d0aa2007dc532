#include "trireme/parallel/reducer.hpp"

#include "parallel/reducers.hpp"

namespace trireme {

std::unique_ptr<GradientReducer> make_reducer(CollectiveQueue& queue, Device& device,
                                              const ParameterTable& table, const Sharding& sharding,
                                              Arena& arena, const ReducerOptions& options) {
    if (options.reproducible) return make_tree_reducer(queue.comm(), device, table, sharding, arena, options);
    if (sharding.shards_gradients())
        return make_window_reducer(queue, device, table, sharding, arena, options);
    return make_fast_reducer(queue, device, sharding, arena, options);
}

}  // namespace trireme
