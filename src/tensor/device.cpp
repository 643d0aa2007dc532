#include "trireme/tensor/device.hpp"

#include "tensor/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Device> make_device(const std::string& kind, int number) {
    if (kind == "cpu") return make_cpu_device();
    if (kind == "cuda") return make_cuda_device(number);
    throw usage_error("run.device=" + kind + ": expected auto, cpu or cuda");
}

std::string cuda_absence() {
    try {
        make_cuda_device(0);
        return {};
    } catch (const Error& error) {
        return error.what();
    }
}

}  // namespace trireme
