// A device of addresses without memory: what is made on it is counted, may be as large as it likes, and is
// never read or written. Its operations (make_ops) do nothing. For forecasts.
#pragma once

#include <atomic>
#include <cstdint>

#include "trireme/tensor/device.hpp"

namespace trireme {

class MetaDevice final : public Device {
public:
    std::string name() const override { return "meta"; }
    void* allocate(std::size_t bytes) override;
    void release(void* data, std::size_t bytes) noexcept override;
    void copy_from_host(void*, const void*, std::size_t) override {}
    void copy_to_host(void*, const void*, std::size_t) override {}
    void clear(void*, std::size_t) override {}
    void synchronize() override {}
    bool host_memory() const override { return false; }
    std::unique_ptr<DeviceGraph> record(const std::function<void()>&) override { return nullptr; }
    std::unique_ptr<Device> staging() override { return std::make_unique<MetaDevice>(); }

    /// Allocated and not yet released.
    std::int64_t bytes() const { return bytes_; }

private:
    std::atomic<std::int64_t> bytes_{0};
};

}  // namespace trireme
