// Device memory that a verb needs for the length of its call. It only grows, so that a steady step asks for
// none; verbs follow each other on one stream, so that the next may use what the last one did.
#pragma once

#include <algorithm>
#include <cstddef>

#include "trireme/tensor/device.hpp"

namespace trireme::cuda {

class Scratch {
public:
    explicit Scratch(Device& device) : device_(&device) {}

    /// At least `bytes`, aligned to 256; what was handed out before is lost.
    void* reserve(std::size_t bytes) {
        if (bytes > buffer_.bytes()) {
            buffer_ = Buffer();
            buffer_ = Buffer(*device_, std::max(bytes, least));
        }
        return buffer_.data();
    }
    template <class T>
    T* reserve_of(std::int64_t count) {
        return static_cast<T*>(reserve(static_cast<std::size_t>(count) * sizeof(T)));
    }

private:
    static constexpr std::size_t least = 64 << 10;

    Device* device_;
    Buffer buffer_;
};

}  // namespace trireme::cuda
