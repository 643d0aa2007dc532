// Kernels: what a launch may ask for, and queueing it.
#include "cudaemu/launch.hpp"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "call.hpp"
#include "capture.hpp"
#include "machine.hpp"
#include "options.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

struct Known {
    Untyped untyped = nullptr;
    std::size_t shared_limit = shared_per_block;  // raised by cudaFuncSetAttribute
};

std::map<const void*, Known>& kernels() {
    static auto& all = *new std::map<const void*, Known>;
    return all;
}

cudaError_t check(const cudaLaunchConfig_t& config, const void* kernel) {
    const dim3 g = config.gridDim, b = config.blockDim;
    const std::size_t threads = std::size_t{b.x} * b.y * b.z;
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535 || threads == 0 ||
        threads > 1024 || b.z > 64) {
        return cudaErrorInvalidConfiguration;
    }
    if (config.dynamicSmemBytes > kernels()[kernel].shared_limit) return cudaErrorInvalidValue;
    for (unsigned i = 0; i < config.numAttrs; ++i) {
        // Of these the first may be ignored; clusters and cooperation cannot be emulated.
        if (config.attrs[i].id != cudaLaunchAttributeIgnore) return cudaErrorNotSupported;
    }
    if (config.stream != nullptr && config.stream->device != current_device()) {
        return cudaErrorInvalidResourceHandle;
    }
    return options().fail_launch.strikes() ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

int blocks_at_once(std::size_t threads, std::size_t shared_bytes) {
    if (threads == 0 || threads > 1024 || shared_bytes > shared_optin) return 0;
    const std::size_t warps = (threads + 31) / 32;
    const std::size_t by_threads = threads_per_sm / 32 / warps;
    const std::size_t by_shared = shared_per_sm / (shared_bytes + 1024);
    return static_cast<int>(std::min({by_threads, by_shared, std::size_t{blocks_per_sm}}));
}

}  // namespace

void know(const void* kernel, Untyped untyped) {
    const Lock lock;
    const san::Aside aside;
    kernels()[kernel].untyped = untyped;
}

cudaError_t enqueue_launch(const cudaLaunchConfig_t& config, const void* kernel, Body body,
                           std::shared_ptr<const void> bound) {
    return api([&] {
        if (const cudaError_t e = check(config, kernel); e != cudaSuccess) return e;
        const auto describe = [kernel] { return name(kernel); };
        const int on = current_device();
        // Moved, so that it is freed in here, aside.
        const Launch launch{config.gridDim, config.blockDim, config.dynamicSmemBytes, kernel,
                            body,           bound.get()};
        return submit(config.stream,
                      work(NodeKind::kernel, on, describe, [launch, on, bound = std::move(bound)] {
                          if (options().fail_kernel.strikes()) {
                              devices()[static_cast<std::size_t>(on)]->lost = cudaErrorLaunchFailure;
                          } else {
                              run(launch);
                          }
                      }));
    });
}

cudaError_t bad_argument(const void* kernel, int position) {
    std::fprintf(stderr, "cudaemu: argument %d of %s points to memory that the device cannot reach\n",
                 position, name(kernel).c_str());
    return note(cudaErrorInvalidValue);
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** args) {
    const Lock lock;
    const auto known = kernels().find(kernel);
    if (known == kernels().end() || known->second.untyped == nullptr) {
        return api([] { return cudaErrorInvalidDeviceFunction; });
    }
    return known->second.untyped(*config, kernel, args);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
    return api([&] {
        if (value < 0) return cudaErrorInvalidValue;
        if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
        if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaErrorInvalidValue;
        if (static_cast<std::size_t>(value) > shared_optin) return cudaErrorInvalidValue;
        kernels()[kernel].shared_limit = std::max(shared_per_block, static_cast<std::size_t>(value));
        return cudaSuccess;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads,
                                                                   std::size_t shared_bytes, unsigned) {
    return api([&] {
        if (threads <= 0) return cudaErrorInvalidValue;
        *blocks = blocks_at_once(static_cast<std::size_t>(threads), shared_bytes);
        return cudaSuccess;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                          std::size_t shared_bytes) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared_bytes,
                                                                  cudaOccupancyDefault);
}

}  // extern "C"
