// Working memory of an Ops object: grows at first use, then stays.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace trireme::cpu {

class Scratch {
public:
    /// At least `bytes`, 64-byte aligned, of unspecified content; valid until the next call that asks for
    /// more.
    void* reserve(std::size_t bytes) {
        if (bytes > bytes_) {
            data_.reset();
            data_.reset(::operator new(bytes, alignment));
            bytes_ = bytes;
        }
        return data_.get();
    }
    template <class T>
    T* reserve_of(std::size_t count) {
        return static_cast<T*>(reserve(count * sizeof(T)));
    }

private:
    static constexpr std::align_val_t alignment{64};
    struct Release {
        void operator()(void* data) const { ::operator delete(data, alignment); }
    };
    std::unique_ptr<void, Release> data_;
    std::size_t bytes_ = 0;
};

}  // namespace trireme::cpu
