#include "trireme/parallel/reducer.hpp"

#include "parallel/reducers.hpp"

namespace trireme {

std::unique_ptr<GradientReducer> make_reducer(Communicator& data, Device& device, const ParameterTable& table,
                                              Arena& arena, const ReducerOptions& options) {
    return options.reproducible ? make_tree_reducer(data, device, table, arena, options)
                                : make_fast_reducer(data, device, table, arena, options);
}

}  // namespace trireme
