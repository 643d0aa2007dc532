#include "call.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "options.hpp"

namespace trireme::cudaemu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

struct Named {
    cudaError_t error;
    const char *name, *text;
};

#define NAMED(error, text) \
    { error, #error, text }
constexpr Named known[] = {
    NAMED(cudaSuccess, "no error"),
    NAMED(cudaErrorInvalidValue, "invalid argument"),
    NAMED(cudaErrorMemoryAllocation, "out of memory"),
    NAMED(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    NAMED(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    NAMED(cudaErrorInvalidDeviceFunction, "invalid device function"),
    NAMED(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    NAMED(cudaErrorInvalidDevice, "invalid device ordinal"),
    NAMED(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    NAMED(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    NAMED(cudaErrorNotReady, "device not ready"),
    NAMED(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    NAMED(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    NAMED(cudaErrorLaunchFailure, "unspecified launch failure"),
    NAMED(cudaErrorNotPermitted, "operation not permitted"),
    NAMED(cudaErrorNotSupported, "operation not supported"),
    NAMED(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    NAMED(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    NAMED(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    NAMED(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    NAMED(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    NAMED(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    NAMED(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    NAMED(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    NAMED(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
    NAMED(cudaErrorGraphExecUpdateFailure, "the graph update was not performed"),
};
#undef NAMED

const Named* find(cudaError_t e) {
    const auto* at = std::ranges::find(known, e, &Named::error);
    return at != std::end(known) ? at : nullptr;
}

}  // namespace

cudaError_t note(cudaError_t e) {
    if (e != cudaSuccess && e != cudaErrorNotReady) last_error = e;
    return e;
}

cudaError_t obstacle() {
    if (options().devices < 0) return cudaErrorInsufficientDriver;
    if (devices().empty()) return cudaErrorNoDevice;
    if (in_host_function()) return cudaErrorNotPermitted;
    return device().lost;
}

bool& in_host_function() {
    static thread_local bool in = false;
    return in;
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaPeekAtLastError() {
    const Lock lock;
    const cudaError_t e = obstacle();
    return e != cudaSuccess && e != cudaErrorNotPermitted ? e : last_error;
}

cudaError_t cudaGetLastError() {
    const cudaError_t e = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return e;
}

const char* cudaGetErrorName(cudaError_t e) {
    const Named* named = find(e);
    return named != nullptr ? named->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t e) {
    const Named* named = find(e);
    return named != nullptr ? named->text : "unrecognized error code";
}

}  // extern "C"
