// What a parameter is called in PyTorch: the names under which weights leave and enter as safetensors. Shapes
// and the order of elements are the same on both sides.
#pragma once

#include <string>
#include <vector>

namespace trireme {

/// One name for each parameter. `layers`: the lines of the model, presets written out. A layer without a name
/// of its own is called by its number, as in nn.Sequential ("3.conv.weight" is "3.weight"); the products of
/// attention and swiglu are called as usual (q_proj, k_proj, v_proj, out_proj; gate_proj, up_proj,
/// down_proj).
/// @throws Error (bad_usage) naming two parameters that would get the same name.
std::vector<std::string> torch_names(const std::vector<std::string>& layers,
                                     const std::vector<std::string>& parameters);

}  // namespace trireme
