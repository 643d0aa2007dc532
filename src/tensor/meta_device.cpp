#include "trireme/tensor/meta_device.hpp"

#include <sys/mman.h>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {

// Pages that may be read (as zeros) but not written count for nothing, whatever the system's policy on
// overcommitting memory.
void* MetaDevice::allocate(std::size_t bytes) {
    void* data = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED)
        throw failure("no addresses for " + bytes_text(static_cast<double>(bytes)) + " of a forecast");
    bytes_ += static_cast<std::int64_t>(bytes);
    return data;
}

void MetaDevice::release(void* data, std::size_t bytes) noexcept {
    munmap(data, bytes);
    bytes_ -= static_cast<std::int64_t>(bytes);
}

}  // namespace trireme
