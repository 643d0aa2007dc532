#include "tensor/cuda_plugin.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr const char* file_name = "libtrireme_cuda.so";

/// What is to be opened whatever the machine has.
std::string given_place() {
    const char* given = std::getenv("TRIREME_CUDA_PLUGIN");
    return given != nullptr ? given : "";
}

std::vector<std::filesystem::path> places() {
    if (const std::string given = given_place(); !given.empty()) return {given};
    std::error_code unreadable;
    const std::filesystem::path here =
        std::filesystem::read_symlink("/proc/self/exe", unreadable).parent_path();
    return {here / file_name, here.parent_path() / "lib" / file_name};
}

bool has_driver() {
    return access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;  // the latter in WSL
}

void* open_plugin() {
    std::string looked;
    for (const std::filesystem::path& place : places()) {
        looked += (looked.empty() ? "" : ", ") + place.string();
        if (access(place.c_str(), F_OK) != 0) continue;
        // Opening CUDA's libraries to be told so would take half a second.
        if (given_place().empty() && !has_driver())
            throw usage_error(
                "run.device=cuda: no NVIDIA driver on this machine (/dev/nvidiactl is missing)");
        void* plugin = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (plugin == nullptr)
            throw usage_error(std::string("run.device=cuda: the CUDA backend does not load: ") + dlerror());
        const auto* built = static_cast<const char* const*>(dlsym(plugin, "trireme_cuda_interface"));
        if (built == nullptr || std::string(*built) != TRIREME_INTERFACE)
            throw usage_error("run.device=cuda: " + place.string() +
                              " belongs to another build of trireme (interface " +
                              (built == nullptr ? "unknown" : *built) + ", expected " TRIREME_INTERFACE ")");
        return plugin;
    }
    throw usage_error(
        "run.device=cuda: this build has no CUDA backend, or it was not installed with it; looked for " +
        looked);
}

void* find_entry(const char* name) {
    static void* const plugin = open_plugin();
    return dlsym(plugin, name);
}

}  // namespace

bool expects_cuda() {
    return !given_place().empty() || (!build_info().cuda.empty() && has_driver());
}

bool cuda_plugin_has(const char* name) {
    return find_entry(name) != nullptr;
}

void* cuda_plugin_entry(const char* name) {
    void* entry = find_entry(name);
    if (entry == nullptr) throw usage_error(std::string("run.device=cuda: the CUDA backend has no ") + name);
    return entry;
}

}  // namespace trireme
