// A GPU: its memory, and the streams that its work goes to.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tensor/cuda/nvtx.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme::cuda {

class CudaDevice final : public Device {
public:
    /// `number`: modulo the GPUs that this process may use. @throws Error (usage) naming what is missing:
    /// driver, GPU.
    explicit CudaDevice(int number);
    ~CudaDevice() override;
    CudaDevice(const CudaDevice&) = delete;
    CudaDevice& operator=(const CudaDevice&) = delete;

    std::string name() const override { return "cuda"; }
    std::string identity() const override { return identity_; }
    void* allocate(std::size_t bytes) override;
    void release(void* data, std::size_t bytes) noexcept override;
    void copy_from_host(void* to, const void* from, std::size_t bytes) override;
    void upload(void* to, const void* from, std::size_t bytes) override;
    void copy_to_host(void* to, const void* from, std::size_t bytes) override;
    void clear(void* data, std::size_t bytes) override;
    void synchronize() override;
    bool host_memory() const override { return false; }
    bool holds(const void* data) const override;
    bool has_streams() const override { return true; }
    Stream use(Stream stream) override;
    std::unique_ptr<DeviceEvent> make_event() override;
    std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) override;
    std::unique_ptr<Device> staging() override;

    SpanListener* listener() override { return &ranges_; }

    /// Makes this the calling thread's device; returns the stream that the thread's calls go to.
    cudaStream_t stream() const;
    int ordinal() const { return ordinal_; }
    int multiprocessors() const { return multiprocessors_; }
    /// "NVIDIA H200".
    const std::string& model() const { return model_; }

    /// Waits until nothing uses memory of the device any more. False where that failed or, while an error is
    /// on its way, does not come about: then nothing is to be freed.
    bool settle() const noexcept;
    /// Called now and then while the host waits for the device: who knows why that will never end throws.
    /// `key` takes it back.
    void watch(const void* key, std::function<void()> look);
    void unwatch(const void* key);

private:
    static constexpr std::chrono::seconds for_ever = std::chrono::hours(24 * 365);
    /// @throws Error (failed) also after `longest`.
    void wait_for(cudaStream_t queue, const char* what, std::chrono::seconds longest = for_ever) const;

    int ordinal_ = 0;
    int multiprocessors_ = 1;
    std::string model_, identity_;
    NvtxRanges ranges_;
    /// By Stream.
    std::array<cudaStream_t, static_cast<std::size_t>(Stream::messages) + message_streams> streams_{};
    mutable std::atomic<bool> stuck_{false};
    mutable std::mutex watching_;
    std::map<const void*, std::function<void()>> watches_;
};

}  // namespace trireme::cuda
