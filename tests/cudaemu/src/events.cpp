// The runtime's calls on events.
#include <utility>

#include "call.hpp"
#include "capture.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

cudaError_t check_query(cudaEvent_t e) {
    if (const cudaError_t error = forbidden(); error != cudaSuccess) return error;
    return e->capture ? cudaErrorCapturedEvent : cudaSuccess;
}

}  // namespace
}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned flags) {
    return api([&] {
        constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
        if ((flags & ~known) != 0) return cudaErrorInvalidValue;
        *e = new CUevent_st{current_device(), flags};
        return cudaSuccess;
    });
}

cudaError_t cudaEventCreate(cudaEvent_t* e) {
    return cudaEventCreateWithFlags(e, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t e) {
    return api([&] {
        delete e;
        return cudaSuccess;
    });
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    return api([&] {
        if (s == nullptr) return default_stream();
        if (s->device != e->device) return cudaErrorInvalidResourceHandle;
        if (s->capture) return record_captured(e, s);
        e->capture.reset();
        e->mark = std::make_shared<Mark>(Mark{s});
        Op op;
        op.sets = e->mark;
        enqueue(s, std::move(op));
        run_if_eager(s);
        return cudaSuccess;
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    return api([&] {
        if (flags != 0) return cudaErrorInvalidValue;
        if (s == nullptr) return default_stream();
        if (s->capture || e->capture) return wait_captured(s, e);
        if (!e->mark) return cudaSuccess;
        Op op;
        op.needs = e->mark;
        enqueue(s, std::move(op));
        run_if_eager(s);
        return cudaSuccess;
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    return api([&] {
        if (const cudaError_t error = check_query(e); error != cudaSuccess) return error;
        const auto mark = e->mark;
        if (!mark) return cudaSuccess;
        drive([&] { return mark->reached; }, mark->reached ? nullptr : mark->stream, "the wait for an event");
        san::acquire(mark.get());
        return obstacle();
    });
}

cudaError_t cudaEventQuery(cudaEvent_t e) {
    return api([&] {
        if (const cudaError_t error = check_query(e); error != cudaSuccess) return error;
        if (!e->mark) return cudaSuccess;
        if (!e->mark->reached) poke(e->mark->stream);
        if (!e->mark->reached) return cudaErrorNotReady;
        san::acquire(e->mark.get());
        return obstacle();
    });
}

cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t from, cudaEvent_t to) {
    return api([&] {
        if (from->capture || to->capture) return cudaErrorCapturedEvent;
        if (((from->flags | to->flags) & cudaEventDisableTiming) != 0 || !from->mark || !to->mark) {
            return cudaErrorInvalidResourceHandle;
        }
        if (!from->mark->reached || !to->mark->reached) return cudaErrorNotReady;
        *ms = std::chrono::duration<float, std::milli>(to->mark->time - from->mark->time).count();
        return cudaSuccess;
    });
}

}  // extern "C"
