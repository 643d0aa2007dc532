// The CUDA backend stands in a library of its own, libtrireme_cuda.so: linked in, CUDA's libraries would cost
// half a second at every start, and the program would not start where they are missing. It is opened when
// somebody asks for the device, and stays open.
#pragma once

namespace trireme {

/// An entry of the plugin: entries have C names, and are looked up once.
/// @throws Error (usage, all ranks alike) that says where the plugin was looked for, or why it is refused.
void* cuda_plugin_entry(const char* name);
bool cuda_plugin_has(const char* name);

/// Whether whoever started the program may expect it to find a GPU: this build has the backend and the
/// machine a driver, or a place of the plugin was given.
bool expects_cuda();

}  // namespace trireme
