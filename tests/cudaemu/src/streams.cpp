// The runtime's calls on streams.
#include <algorithm>
#include <optional>
#include <utility>

#include "call.hpp"
#include "capture.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

// Runs on a thread of the driver: with the lock open, watched as part of the program, and without the right
// to call the runtime.
Progress call_host(cudaHostFn_t f, void* data) {
    in_host_function() = true;
    let_go();
    {
        const Unlocked open;
        san::watch();
        f(data);
        san::unwatch();
    }
    in_host_function() = false;
    return Progress::done;
}

bool known(cudaStream_t s) {
    return std::ranges::find(streams(), s) != streams().end() && !s->abandoned;
}

}  // namespace
}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned flags, int priority) {
    return api([&] {
        static int count = 0;
        if (flags != cudaStreamNonBlocking && flags != cudaStreamDefault) return cudaErrorInvalidValue;
        *s = new CUstream_st{current_device(), ++count, flags, std::clamp(priority, -5, 0), san::actor()};
        streams().push_back(*s);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned flags) {
    return cudaStreamCreateWithPriority(s, flags, 0);
}

// Returns at once; the stream goes when its work is done.
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    return api([&] {
        if (!known(s)) return cudaErrorInvalidResourceHandle;
        if (s->capture) {
            const cudaError_t e = forbidden_on(s);
            std::erase(s->capture->lanes, s);
            s->capture.reset();
            static_cast<void>(e);
        }
        if (!s->queue.empty()) {
            s->abandoned = true;
            return cudaSuccess;
        }
        bury(s);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    return api([&] {
        if (s == nullptr) return default_stream();
        if (!known(s)) return cudaErrorInvalidResourceHandle;
        if (const cudaError_t e = forbidden_on(s); e != cudaSuccess) return e;
        drain(s);
        return obstacle();
    });
}

cudaError_t cudaStreamQuery(cudaStream_t s) {
    return api([&] {
        if (s == nullptr) return default_stream();
        if (!known(s)) return cudaErrorInvalidResourceHandle;
        if (const cudaError_t e = forbidden_on(s); e != cudaSuccess) return e;
        if (!s->queue.empty()) poke(s);
        if (!s->queue.empty()) return cudaErrorNotReady;
        san::acquire(s);
        return obstacle();
    });
}

cudaError_t cudaDeviceSynchronize() {
    return api([&] {
        if (const cudaError_t e = forbidden(); e != cudaSuccess) return e;
        drain_device(current_device());
        return obstacle();
    });
}

cudaError_t cudaStreamGetPriority(cudaStream_t s, int* priority) {
    return api([&] {
        *priority = s->priority;
        return cudaSuccess;
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void* data) {
    return api([&] {
        const auto describe = [] { return std::string("a host function"); };
        Op op;
        op.run = [f, data] { return call_host(f, data); };
        op.describe = describe;
        return submit(s, {NodeKind::host, describe, [op] { return op; }});
    });
}

}  // extern "C"
