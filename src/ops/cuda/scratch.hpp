// Device memory that a verb needs for the length of its call. A steady step asks for none: what is there is
// used again. Verbs follow each other on one stream, so that the next may use what the last one did.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "trireme/tensor/device.hpp"

namespace trireme::cuda {

class Scratch {
public:
    explicit Scratch(Device& device) : device_(&device) {}

    /// At least `bytes`, aligned to 256; what was handed out before may be overwritten.
    void* reserve(std::size_t bytes) {
        if (buffers_.empty() || bytes > buffers_.back().bytes())
            buffers_.emplace_back(*device_, std::max(bytes, least));
        return buffers_.back().data();
    }
    template <class T>
    T* reserve_of(std::int64_t count) {
        return static_cast<T*>(reserve(static_cast<std::size_t>(count) * sizeof(T)));
    }

private:
    static constexpr std::size_t least = 64 << 10;

    Device* device_;
    std::vector<Buffer> buffers_;  ///< each larger than the one before, which recorded steps go on using
};

}  // namespace trireme::cuda
