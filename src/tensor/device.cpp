#include "trireme/tensor/device.hpp"

#include "tensor/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Device> make_device(const std::string& kind) {
    if (kind == "cpu") return make_cpu_device();
    if (kind == "cuda") return make_cuda_device();
    if (kind != "auto") throw usage_error("run.device=" + kind + ": expected auto, cpu or cuda");
    try {
        return make_cuda_device();
    } catch (const Error&) {
        return make_cpu_device();
    }
}

std::string cuda_absence() {
    try {
        make_cuda_device();
        return {};
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace trireme
