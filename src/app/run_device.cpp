#include "app/run_device.hpp"

#include "trireme/base/error.hpp"

namespace trireme::app {
namespace {

constexpr const char* not_built = "this version trains on CPUs only";

}  // namespace

std::unique_ptr<Device> make_run_device(const std::string& kind) {
    if (kind != "cuda") return make_device(kind == "auto" ? "cpu" : kind);
    if (const std::string missing = cuda_absence(); !missing.empty()) throw usage_error(missing);
    throw usage_error(std::string("run.device=cuda: ") + not_built + "; expected auto or cpu");
}

std::string gpu_absence() {
    std::string missing = cuda_absence();  // "run.device=cuda: no NVIDIA driver ..."
    if (missing.empty()) return not_built;
    if (const std::size_t colon = missing.find(": "); colon != std::string::npos) missing.erase(0, colon + 2);
    return missing.substr(0, missing.find(';'));  // without advice and paths
}

}  // namespace trireme::app
