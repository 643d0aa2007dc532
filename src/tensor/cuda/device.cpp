#include "tensor/cuda/device.hpp"

#include "tensor/backends.hpp"
#include "tensor/cuda/errors.hpp"
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

CudaDevice::CudaDevice() {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver)
        throw missing("no NVIDIA driver on this machine, or one too old for this build");
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        throw missing("no GPU on this machine that this process may use");
    if (status != cudaSuccess) throw missing(std::string("CUDA says ") + cudaGetErrorString(status));
    check(cudaGetDevice(&ordinal_), "cudaGetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal_), "cudaGetDeviceProperties");
    multiprocessors_ = properties.multiProcessorCount;
    model_ = properties.name;
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

CudaDevice::~CudaDevice() {
    if (cudaSetDevice(ordinal_) == cudaSuccess) cudaStreamDestroy(stream_);
}

cudaStream_t CudaDevice::stream() const {
    check(cudaSetDevice(ordinal_), "cudaSetDevice");
    return stream_;
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

// What may still use the memory comes first.
void CudaDevice::release(void* data, std::size_t) noexcept {
    if (cudaSetDevice(ordinal_) != cudaSuccess) return;
    cudaStreamSynchronize(stream_);
    cudaFree(data);
}

void CudaDevice::copy_from_host(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    const cudaStream_t queue = stream();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue),
          "a copy of " + size_text(bytes) + " to the GPU");
    check(cudaStreamSynchronize(queue), "a copy of " + size_text(bytes) + " to the GPU");
}

void CudaDevice::copy_to_host(void* to, const void* from, std::size_t bytes) {
    if (bytes == 0) return;
    const cudaStream_t queue = stream();
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue),
          "a copy of " + size_text(bytes) + " from the GPU");
    check(cudaStreamSynchronize(queue), "a copy of " + size_text(bytes) + " from the GPU");
}

void CudaDevice::synchronize() {
    check(cudaStreamSynchronize(stream()), "work on the GPU");
}

}  // namespace cuda

std::unique_ptr<Device> make_cuda_device() {
    return std::make_unique<cuda::CudaDevice>();
}

}  // namespace trireme
