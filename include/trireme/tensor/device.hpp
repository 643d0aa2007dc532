// Where tensors live. A device hands out memory once, at the start; a steady step asks for none.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace trireme {

class Device;

/// Owns one allocation of a device; 64-byte aligned, zeroed.
class Buffer {
public:
    Buffer() = default;
    Buffer(Device& device, std::size_t bytes);
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
        Buffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    ~Buffer();

    void* data() const { return data_; }
    std::size_t bytes() const { return bytes_; }
    template <class T>
    T* as() const {
        return static_cast<T*>(data_);
    }

private:
    void swap(Buffer& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }

    Device* device_ = nullptr;
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class Device {
public:
    virtual ~Device() = default;
    virtual std::string name() const = 0;
    /// @throws Error naming the bytes asked for when the memory is not there.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void release(void* data, std::size_t bytes) noexcept = 0;
    virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
    virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
    /// Waits until everything handed to the device so far is done.
    virtual void synchronize() = 0;
    /// True where the host reads and writes device memory directly (the CPU).
    virtual bool host_memory() const = 0;
};

/// "cpu"; "cuda", an error that names what is missing where there is none; or "auto": cuda where there is
/// one, else cpu.
std::unique_ptr<Device> make_device(const std::string& kind);

/// Why "auto" is the CPU: what "cuda" would say; empty where there is a GPU.
std::string cuda_absence();

}  // namespace trireme
