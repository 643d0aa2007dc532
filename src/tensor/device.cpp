#include "trireme/tensor/device.hpp"

#include "tensor/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

Buffer::Buffer(Device& device, std::size_t bytes)
    : device_(&device), data_(bytes > 0 ? device.allocate(bytes) : nullptr), bytes_(bytes) {}

Buffer::~Buffer() {
    if (data_ != nullptr) device_->release(data_, bytes_);
}

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
