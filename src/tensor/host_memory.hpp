// What all devices have in common whose memory is the host's: calls are done when they return.
#pragma once

#include <cstring>
#include <memory>

#include "trireme/tensor/device.hpp"

namespace trireme {

class HostMemory : public Device {
public:
    void copy_from_host(void* to, const void* from, std::size_t bytes) override {
        std::memcpy(to, from, bytes);
    }
    void copy_to_host(void* to, const void* from, std::size_t bytes) override {
        std::memcpy(to, from, bytes);
    }
    void clear(void* data, std::size_t bytes) override { std::memset(data, 0, bytes); }
    void synchronize() override {}
    bool host_memory() const override { return true; }
    std::unique_ptr<DeviceGraph> record(const std::function<void()>&) override { return nullptr; }
};

}  // namespace trireme
