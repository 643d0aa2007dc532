#include "trireme/param/arena.hpp"

namespace trireme {

Arena::Arena(Device& device, const ParameterTable& table, const std::vector<std::string>& state_names)
    : weights(device, table, "weights"), gradients(device, table, "gradients") {
    states.reserve(state_names.size());
    for (const std::string& name : state_names) states.emplace_back(device, table, name);
}

}  // namespace trireme
