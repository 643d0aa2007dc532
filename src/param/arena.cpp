#include "trireme/param/arena.hpp"

namespace trireme {

Arena::Arena(Device& device, const ParameterTable& table, const ArenaOptions& options)
    : weights(device, table, "weights"), gradients(device, table, "gradients") {
    states.reserve(options.state_names.size());
    for (const std::string& name : options.state_names) states.emplace_back(device, table, name);
    if (options.compute != DType::f32) low.emplace(device, table, "low", options.compute);
    if (options.average) average.emplace(device, table, "average");
}

}  // namespace trireme
