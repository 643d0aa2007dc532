#include "tensor/cuda/device.hpp"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>

#include "tensor/backends.hpp"
#include "tensor/cuda/errors.hpp"
#include "tensor/host_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace cuda {
namespace {

std::string size_text(std::size_t bytes) {
    return bytes_text(static_cast<double>(bytes));
}

Error missing(const std::string& what) {
    return usage_error("run.device=cuda: " + what);
}

/// Where this thread's calls go, whatever its device.
thread_local Stream current = Stream::compute;

/// As nvidia-smi writes it.
std::string uuid_text(const cudaUUID_t& uuid) {
    std::string text = "GPU";
    for (std::size_t i = 0; i < sizeof uuid.bytes; ++i) {
        if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
        constexpr const char* digits = "0123456789abcdef";
        const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

/// Streams that share a queue of the GPU wait for each other, which those of messages must not: as many
/// queues as there can be. CUDA reads it at its first call.
void ask_for_queues() {
    [[maybe_unused]] static const int once = setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
}

class Event final : public DeviceEvent {
public:
    explicit Event(const CudaDevice& device) : device_(device) {
        device_.stream();
        check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
    }
    ~Event() override { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

    void record() override { check(cudaEventRecord(event_, device_.stream()), "cudaEventRecord"); }
    void follow() override { check(cudaStreamWaitEvent(device_.stream(), event_, 0), "cudaStreamWaitEvent"); }
    bool reached() override {
        device_.stream();
        const cudaError_t state = cudaEventQuery(event_);
        if (state != cudaErrorNotReady) check(state, "work on the GPU");
        return state == cudaSuccess;
    }

private:
    const CudaDevice& device_;
    cudaEvent_t event_ = nullptr;
};

class Graph final : public DeviceGraph {
public:
    /// Takes the graph.
    Graph(const CudaDevice& device, cudaGraph_t graph) : device_(device), graph_(graph) {
        check(cudaGraphInstantiate(&launchable_, graph_, 0), "cudaGraphInstantiate");
    }
    ~Graph() override {
        if (launchable_ != nullptr) cudaGraphExecDestroy(launchable_);
        cudaGraphDestroy(graph_);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    void launch() override { check(cudaGraphLaunch(launchable_, device_.stream()), "cudaGraphLaunch"); }

private:
    const CudaDevice& device_;
    cudaGraph_t graph_;
    cudaGraphExec_t launchable_ = nullptr;
};

/// Host memory that stays where it is, so that the GPU copies from it by itself.
class PinnedMemory final : public HostMemory {
public:
    explicit PinnedMemory(const CudaDevice& device) : device_(device) {}

    std::string name() const override { return "pinned"; }
    void* allocate(std::size_t bytes) override {
        device_.stream();
        void* data = nullptr;
        check(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), "cudaHostAlloc of " + size_text(bytes));
        std::memset(data, 0, bytes);
        return data;
    }
    void release(void* data, std::size_t) noexcept override {
        if (device_.settle()) cudaFreeHost(data);  // which may wait for the device
    }
    std::unique_ptr<Device> staging() override { return std::make_unique<PinnedMemory>(device_); }

private:
    const CudaDevice& device_;
};

}  // namespace

void check(cudaError_t status, const std::string& call) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // else the next launch would report it again
    throw failure("cuda: " + call + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) +
                  ")");
}

void check(cudaError_t status, const char* call) {
    if (status != cudaSuccess) check(status, std::string(call));
}

CudaDevice::CudaDevice(int number) {
    ask_for_queues();
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver)
        throw missing("no NVIDIA driver on this machine, or one too old for this build");
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        throw missing("no GPU on this machine that this process may use");
    if (status != cudaSuccess) throw missing(std::string("CUDA says ") + cudaGetErrorString(status));
    ordinal_ = number % count;
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
    multiprocessors_ = properties.multiProcessorCount;
    model_ = properties.name;
    identity_ = uuid_text(properties.uuid) + " (" + model_ + ")";
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    for (cudaStream_t& stream : streams_)
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

CudaDevice::~CudaDevice() {
    if (cudaSetDevice(ordinal_) != cudaSuccess) return;
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
}

cudaStream_t CudaDevice::stream() const {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    return streams_[static_cast<std::size_t>(current)];
}

Stream CudaDevice::use(Stream stream) {
    return std::exchange(current, stream);
}

void* CudaDevice::allocate(std::size_t bytes) {
    const cudaStream_t queue = stream();
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free = 0, total = 0;
        const bool told = cudaMemGetInfo(&free, &total) == cudaSuccess;
        throw failure("out of memory: " + size_text(bytes) + " could not be allocated on the GPU (" + model_ +
                      ")" +
                      (told ? ", which has " + size_text(free) + " of " + size_text(total) + " free" : ""));
    }
    check(status, "cudaMalloc of " + size_text(bytes));
    check(cudaMemsetAsync(data, 0, bytes, queue), "cudaMemsetAsync");
    return data;
}

// What may still use the memory comes first. Where that does not end, the process will: then it is left to
// that.
void CudaDevice::release(void* data, std::size_t) noexcept {
    if (settle()) cudaFree(data);
}

bool CudaDevice::settle() const noexcept {
    if (stuck_ || cudaSetDevice(ordinal_) != cudaSuccess) return false;
    // When an error is on its way others may no longer take part in what was begun.
    const auto patience = std::uncaught_exceptions() > 0 ? std::chrono::seconds(1) : for_ever;
    try {
        for (const cudaStream_t queue : streams_) wait_for(queue, "work on the GPU", patience);
    } catch (const Error&) {
        stuck_ = true;
    }
    return !stuck_;
}

void CudaDevice::copy_from_host(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    wait_for(stream(), "work on the GPU");  // as below
    upload(to, from, bytes);
    wait_for(stream(), "a copy to the GPU");
}

void CudaDevice::upload(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "a copy to the GPU");
}

void CudaDevice::copy_to_host(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    // CUDA itself waits when it copies from or to memory that is not pinned, and would not look at the
    // watches.
    wait_for(stream(), "work on the GPU");
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()), "a copy from the GPU");
    wait_for(stream(), "a copy from the GPU");
}

void CudaDevice::clear(void* data, std::size_t bytes) {
    if (bytes > 0) check(cudaMemsetAsync(data, 0, bytes, stream()), "cudaMemsetAsync");
}

void CudaDevice::synchronize() {
    stream();
    for (const cudaStream_t queue : streams_) wait_for(queue, "work on the GPU");
}

bool CudaDevice::holds(const void* data) const {
    cudaPointerAttributes attributes{};
    stream();
    if (data == nullptr || cudaPointerGetAttributes(&attributes, data) != cudaSuccess) {
        cudaGetLastError();  // else the next launch would report it
        return false;
    }
    return attributes.type == cudaMemoryTypeDevice && attributes.device == ordinal_;
}

std::unique_ptr<DeviceEvent> CudaDevice::make_event() {
    return std::make_unique<Event>(*this);
}

std::unique_ptr<DeviceGraph> CudaDevice::record(const std::function<void()>& work) {
    const cudaStream_t origin = stream();
    // Other threads (the loader's) go on with what they do.
    check(cudaStreamBeginCapture(origin, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
        work();
    } catch (...) {
        if (cudaStreamEndCapture(origin, &graph) == cudaSuccess) cudaGraphDestroy(graph);
        cudaGetLastError();
        throw;
    }
    check(cudaStreamEndCapture(origin, &graph), "cudaStreamEndCapture");
    return std::make_unique<Graph>(*this, graph);
}

std::unique_ptr<Device> CudaDevice::staging() {
    return std::make_unique<PinnedMemory>(*this);
}

// Short waits, as at the end of a step, keep the processor; longer ones leave it to others.
void CudaDevice::wait_for(cudaStream_t queue, const char* what, std::chrono::seconds longest) const {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now(), patient_from = begin + std::chrono::milliseconds(5);
    while (true) {
        const cudaError_t state = cudaStreamQuery(queue);
        if (state != cudaErrorNotReady) return check(state, what);
        {
            const std::lock_guard lock(watching_);
            for (const auto& [key, look] : watches_) look();
        }
        const Clock::time_point now = Clock::now();
        if (now - begin > longest) throw failure(std::string("cuda: ") + what + " does not end");
        if (now < patient_from)
            std::this_thread::yield();
        else
            std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
}

void CudaDevice::watch(const void* key, std::function<void()> look) {
    const std::lock_guard lock(watching_);
    watches_[key] = std::move(look);
}

void CudaDevice::unwatch(const void* key) {
    const std::lock_guard lock(watching_);
    watches_.erase(key);
}

}  // namespace cuda

std::unique_ptr<Device> make_cuda_device(int number) {
    return std::make_unique<cuda::CudaDevice>(number);
}

}  // namespace trireme
