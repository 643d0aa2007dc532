// A GPU: its memory, and the one stream that everything is computed on.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "trireme/tensor/device.hpp"

namespace trireme::cuda {

class CudaDevice final : public Device {
public:
    /// @throws Error (usage) naming what is missing: driver, GPU.
    CudaDevice();
    ~CudaDevice() override;
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    std::string name() const override { return "cuda"; }
    void* allocate(std::size_t bytes) override;
    void release(void* data, std::size_t bytes) noexcept override;
    void copy_from_host(void* to, const void* from, std::size_t bytes) override;
    void copy_to_host(void* to, const void* from, std::size_t bytes) override;
    void synchronize() override;
    bool host_memory() const override { return false; }

    /// Makes this the calling thread's device; returns the compute stream.
    cudaStream_t stream() const;
    int ordinal() const { return ordinal_; }
    int multiprocessors() const { return multiprocessors_; }
    /// "NVIDIA H200".
    const std::string& model() const { return model_; }

private:
    int ordinal_ = 0;
    int multiprocessors_ = 1;
    std::string model_;
    cudaStream_t stream_ = nullptr;
};

}  // namespace trireme::cuda
