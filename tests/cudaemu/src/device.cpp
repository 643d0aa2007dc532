#include "device.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "call.hpp"
#include "options.hpp"

namespace trireme::cudaemu {
namespace {

std::array<unsigned char, 16> uuid(int number) {
    std::array<unsigned char, 16> bytes{'t', 'r', 'i', 'r', 'e', 'm', 'e'};
    bytes[0] = static_cast<unsigned char>(0x10 + number);  // a prefix tells them apart
    bytes[15] = static_cast<unsigned char>(number);
    return bytes;
}

// The number that an entry of CUDA_VISIBLE_DEVICES means, or -1.
int number_of(std::string_view entry, int count) {
    int number = -1;
    if (entry.starts_with("GPU-")) {
        for (int i = 0; i < count; ++i) {
            if (uuid_text(i).starts_with(entry)) return i;
        }
        return -1;
    }
    const char* end = entry.data() + entry.size();
    const auto [at, error] = std::from_chars(entry.data(), end, number);
    return error == std::errc() && at == end && number < count ? number : -1;
}

// As the driver reads it: entries count up to the first that names no device, or names one again.
std::vector<int> visible(int count) {
    std::vector<int> numbers;
    const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
    if (variable == nullptr) {
        for (int i = 0; i < count; ++i) numbers.push_back(i);
        return numbers;
    }
    for (std::string_view rest = variable; !rest.empty();) {
        const auto comma = std::min(rest.find(','), rest.size());
        const int number = number_of(rest.substr(0, comma), count);
        if (number < 0 || std::ranges::find(numbers, number) != numbers.end()) break;
        numbers.push_back(number);
        rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return numbers;
}

int attribute(cudaDeviceAttr what, const Device& d) {
    switch (what) {
        case cudaDevAttrMultiProcessorCount:
            return sm_count;
        case cudaDevAttrMaxThreadsPerBlock:
            return 1024;
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY:
            return 1024;
        case cudaDevAttrMaxBlockDimZ:
            return 64;
        case cudaDevAttrMaxGridDimX:
            return 0x7fffffff;
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ:
            return 65535;
        case cudaDevAttrMaxSharedMemoryPerBlock:
            return shared_per_block;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:
            return shared_optin;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            return shared_per_sm;
        case cudaDevAttrReservedSharedMemoryPerBlock:
            return 1024;
        case cudaDevAttrMaxThreadsPerMultiProcessor:
            return threads_per_sm;
        case cudaDevAttrMaxBlocksPerMultiprocessor:
            return blocks_per_sm;
        case cudaDevAttrMaxRegistersPerBlock:
            return 65536;
        case cudaDevAttrWarpSize:
            return 32;
        case cudaDevAttrComputeCapabilityMajor:
            return 9;
        case cudaDevAttrComputeCapabilityMinor:
            return 0;
        case cudaDevAttrL2CacheSize:
            return 1 << 20;
        case cudaDevAttrPciDomainId:
            return 0;
        case cudaDevAttrPciBusId:
            return d.number + 1;
        case cudaDevAttrPciDeviceId:
            return 0;
        case cudaDevAttrAsyncEngineCount:
            return 2;
        case cudaDevAttrConcurrentKernels:
        case cudaDevAttrUnifiedAddressing:
        case cudaDevAttrCanMapHostMemory:
            return 1;
        default:
            return -1;
    }
}

void describe(cudaDeviceProp& p, const Device& d) {
    p = {};
    std::strcpy(p.name, "emulated device");
    const auto bytes = uuid(d.number);
    std::memcpy(p.uuid.bytes, bytes.data(), bytes.size());
    p.totalGlobalMem = d.arena.capacity();
    p.sharedMemPerBlock = shared_per_block;
    p.sharedMemPerBlockOptin = shared_optin;
    p.sharedMemPerMultiprocessor = shared_per_sm;
    p.reservedSharedMemPerBlock = 1024;
    p.regsPerBlock = 65536;
    p.warpSize = 32;
    p.maxThreadsPerBlock = 1024;
    p.maxThreadsPerMultiProcessor = threads_per_sm;
    p.maxBlocksPerMultiProcessor = blocks_per_sm;
    const int block[3] = {1024, 1024, 64}, grid[3] = {0x7fffffff, 65535, 65535};
    std::copy_n(block, 3, p.maxThreadsDim);
    std::copy_n(grid, 3, p.maxGridSize);
    p.major = 9;
    p.multiProcessorCount = sm_count;
    p.l2CacheSize = 1 << 20;
    p.pciBusID = d.number + 1;
    p.unifiedAddressing = 1;
    p.concurrentKernels = 1;
    p.canMapHostMemory = 1;
    p.asyncEngineCount = 2;
}

}  // namespace

std::vector<std::unique_ptr<Device>>& devices() {
    static auto& all = *new std::vector<std::unique_ptr<Device>>([] {
        std::vector<std::unique_ptr<Device>> found;
        for (const int number : visible(std::max(0, options().devices))) {
            found.push_back(std::make_unique<Device>(number, options().memory));
        }
        return found;
    }());
    return all;
}

int& current_device() {
    static thread_local int current = 0;
    return current;
}

Device& device() {
    return *devices()[static_cast<std::size_t>(current_device())];
}

std::string uuid_text(int number) {
    std::string text = "GPU-";
    const auto bytes = uuid(number);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        char hex[3];
        std::snprintf(hex, sizeof hex, "%02x", bytes[i]);
        if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        text += hex;
    }
    return text;
}

int device_of(const void* p, std::size_t n) {
    for (std::size_t i = 0; i < devices().size(); ++i) {
        if (devices()[i]->arena.holds(p, n)) return static_cast<int>(i);
    }
    return -1;
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
    const Lock lock;
    if (options().devices < 0) return note(cudaErrorInsufficientDriver);
    *count = static_cast<int>(devices().size());
    return note(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int index) {
    return api([&] {
        if (index < 0 || static_cast<std::size_t>(index) >= devices().size()) return cudaErrorInvalidDevice;
        current_device() = index;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int* index) {
    return api([&] {
        *index = current_device();
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int index) {
    return api([&] {
        if (index < 0 || static_cast<std::size_t>(index) >= devices().size()) return cudaErrorInvalidDevice;
        describe(*p, *devices()[static_cast<std::size_t>(index)]);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr what, int index) {
    return api([&] {
        if (index < 0 || static_cast<std::size_t>(index) >= devices().size()) return cudaErrorInvalidDevice;
        const int known = attribute(what, *devices()[static_cast<std::size_t>(index)]);
        if (known < 0) return cudaErrorInvalidValue;
        *value = known;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int index) {
    return api([&] {
        if (index < 0 || static_cast<std::size_t>(index) >= devices().size()) return cudaErrorInvalidDevice;
        const int number = devices()[static_cast<std::size_t>(index)]->number;
        const int length = std::snprintf(text, static_cast<std::size_t>(size), "0000:%02X:00.0", number + 1);
        return length < size ? cudaSuccess : cudaErrorInvalidValue;
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api([&] {
        *least = 0;
        *greatest = -5;
        return cudaSuccess;
    });
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = options().devices < 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

}  // extern "C"
