// The runtime's calls on memory.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "call.hpp"
#include "capture.hpp"
#include "options.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

struct Pinned {
    std::size_t bytes;
    int device;  // that was current
};

std::map<const std::byte*, Pinned>& pinned() {
    static auto& all = *new std::map<const std::byte*, Pinned>;
    return all;
}

const Pinned* find_pinned(const void* p, std::size_t n) {
    const auto* at = static_cast<const std::byte*>(p);
    auto piece = pinned().upper_bound(at);
    if (piece == pinned().begin()) return nullptr;
    --piece;
    return at + n <= piece->first + piece->second.bytes ? &piece->second : nullptr;
}

struct Copy {
    void* to;
    const void* from;
    std::size_t n;
    int to_device, from_device;  // -1: the host

    // Each side may be another device's.
    void run(const void* source) const {
        const Access there(to_device >= 0 ? to_device : current_device());
        const Access here(from_device >= 0 ? from_device : current_device());
        san::reads(source, n);
        san::writes(to, n);
        std::memcpy(to, source, n);
    }
    void run() const { run(from); }
    bool is(cudaMemcpyKind kind) const {
        switch (kind) {
            case cudaMemcpyHostToHost:
                return to_device < 0 && from_device < 0;
            case cudaMemcpyHostToDevice:
                return to_device >= 0 && from_device < 0;
            case cudaMemcpyDeviceToHost:
                return to_device < 0 && from_device >= 0;
            case cudaMemcpyDeviceToDevice:
                return to_device >= 0 && from_device >= 0;
            case cudaMemcpyDefault:
                return true;
        }
        return false;
    }
    std::string describe() const {
        return "a copy of " + std::to_string(n) + " bytes " +
               (from_device < 0 ? "from the host" : "from the device") +
               (to_device < 0 ? " to the host" : " to the device");
    }
};

Copy copy_of(void* to, const void* from, std::size_t n) {
    return {to, from, n, device_of(to, n), device_of(from, n)};
}

cudaError_t copy_async(const Copy& copy, cudaStream_t s) {
    const bool pageable_to = copy.to_device < 0 && !is_pinned(copy.to, copy.n);
    const bool pageable_from = copy.from_device < 0 && !is_pinned(copy.from, copy.n);
    // The device has no way to pageable memory, so that a replay could not read it.
    if ((pageable_to || pageable_from) && s != nullptr && s->capture) return forbidden_on(s);
    const auto describe = [copy] { return copy.describe(); };
    std::function<void()> run = [copy] { copy.run(); };
    if (pageable_from) {  // taken before the call returns
        std::shared_ptr<std::byte[]> staged(new std::byte[copy.n]);
        san::reads(copy.from, copy.n);
        std::memcpy(staged.get(), copy.from, copy.n);
        run = [copy, staged] { copy.run(staged.get()); };
    }
    const int device = s != nullptr ? s->device : 0;
    if (const cudaError_t e = submit(s, work(NodeKind::copy, device, describe, std::move(run)));
        e != cudaSuccess) {
        return e;
    }
    if (pageable_to) drain(s);
    return cudaSuccess;
}

cudaError_t set(void* p, int value, std::size_t n) {
    const Access access(device_of(p, n));
    san::writes(p, n);
    std::memset(p, value, n);
    return cudaSuccess;
}

}  // namespace

bool is_pinned(const void* p, std::size_t n) {
    return find_pinned(p, n) != nullptr;
}

bool reachable(const void* p) {
    const Lock lock;
    return p == nullptr || devices().empty() || device().arena.holds(p, 0) || is_pinned(p, 0);
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaMalloc(void** p, std::size_t n) {
    return api([&] {
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        *p = nullptr;
        if (n == 0) return cudaSuccess;
        if (options().fail_alloc.strikes()) return cudaErrorMemoryAllocation;
        *p = device().arena.take(n);
        if (*p == nullptr) return cudaErrorMemoryAllocation;
        const Access access(current_device());
        std::memset(*p, 0xff, n);  // NaN, whatever the type
        return cudaSuccess;
    });
}

cudaError_t cudaFree(void* p) {
    return api([&] {
        if (p == nullptr) return cudaSuccess;
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        const int owner = device_of(p, 0);
        if (owner < 0) return cudaErrorInvalidValue;
        drain_device(owner);
        return devices()[static_cast<std::size_t>(owner)]->arena.give(p) ? cudaSuccess
                                                                         : cudaErrorInvalidValue;
    });
}

cudaError_t cudaHostAlloc(void** p, std::size_t n, unsigned) {
    return api([&] {
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        *p = nullptr;
        if (n == 0) return cudaSuccess;
        if (options().fail_host_alloc.strikes()) return cudaErrorMemoryAllocation;
        *p = std::aligned_alloc(512, (n + 511) / 512 * 512);
        if (*p == nullptr) return cudaErrorMemoryAllocation;
        pinned().emplace(static_cast<const std::byte*>(*p), Pinned{n, current_device()});
        return cudaSuccess;
    });
}

cudaError_t cudaMallocHost(void** p, std::size_t n) {
    return cudaHostAlloc(p, n, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* p) {
    return api([&] {
        if (p == nullptr) return cudaSuccess;
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        if (!pinned().contains(static_cast<const std::byte*>(p))) return cudaErrorInvalidValue;
        for (std::size_t d = 0; d < devices().size(); ++d) drain_device(static_cast<int>(d));
        pinned().erase(static_cast<const std::byte*>(p));
        std::free(p);
        return cudaSuccess;
    });
}

// On the default stream, which no other waits for; at once, since nothing of ours may wait for it either.
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t n, cudaMemcpyKind kind) {
    return api([&] {
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        const Copy copy = copy_of(to, from, n);
        if (n != 0 && !copy.is(kind)) return cudaErrorInvalidValue;
        if (n != 0) copy.run();
        return cudaSuccess;
    });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t n, cudaMemcpyKind kind, cudaStream_t s) {
    return api([&] {
        if (n == 0) return cudaSuccess;
        const Copy copy = copy_of(to, from, n);
        return copy.is(kind) ? copy_async(copy, s) : cudaErrorInvalidValue;
    });
}

cudaError_t cudaMemset(void* p, int value, std::size_t n) {
    return api([&] {
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        if (n != 0 && !on_device(p, n)) return cudaErrorInvalidValue;
        return n != 0 ? set(p, value, n) : cudaSuccess;
    });
}

cudaError_t cudaMemsetAsync(void* p, int value, std::size_t n, cudaStream_t s) {
    return api([&] {
        if (n == 0) return cudaSuccess;
        if (!on_device(p, n)) return cudaErrorInvalidValue;
        const auto describe = [n] { return "a fill of " + std::to_string(n) + " bytes"; };
        return submit(s, work(NodeKind::set, device_of(p, n), describe, [=] { set(p, value, n); }));
    });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
    return api([&] {
        *free = device().arena.left();
        *total = device().arena.capacity();
        return cudaSuccess;
    });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
    return api([&] {
        *a = {};
        a->type = cudaMemoryTypeUnregistered;
        a->device = -2;  // as for unregistered memory
        if (const int owner = device_of(p, 1); owner >= 0) {
            a->type = cudaMemoryTypeDevice;
            a->device = owner;
            a->devicePointer = const_cast<void*>(p);
        } else if (const Pinned* piece = find_pinned(p, 1); piece != nullptr) {
            a->type = cudaMemoryTypeHost;
            a->device = piece->device;
            a->devicePointer = a->hostPointer = const_cast<void*>(p);
        }
        return cudaSuccess;
    });
}

}  // extern "C"
