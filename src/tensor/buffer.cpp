#include "trireme/tensor/device.hpp"

namespace trireme {

Buffer::Buffer(Device& device, std::size_t bytes)
    : device_(&device), data_(bytes > 0 ? device.allocate(bytes) : nullptr), bytes_(bytes) {}

Buffer::~Buffer() {
    if (data_ != nullptr) device_->release(data_, bytes_);
}

}  // namespace trireme
