// Where tensors live. A device hands out memory once, at the start; a steady step asks for none.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "trireme/base/recorder.hpp"

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

/// Lines of work that go on beside each other, each in the order in which it was given. Devices that are done
/// when a call returns (the CPU) have no use for them. `messages` is the first of several.
enum class Stream { compute, communication, upload, messages };

/// Messages wait for other devices: each line of them has a stream of its own.
inline constexpr int message_streams = 4;
/// `line`: less than message_streams.
constexpr Stream message_stream(int line) {
    return static_cast<Stream>(static_cast<int>(Stream::messages) + line);
}

/// A point in the work of a stream.
class DeviceEvent {
public:
    virtual ~DeviceEvent() = default;
    /// The point is here: after all that this thread's stream has been given.
    virtual void record() {}
    /// What this thread's stream is given from now on comes after the point, where there is one.
    virtual void follow() {}
    /// True once the work has come to the point.
    virtual bool reached() { return true; }
};

/// Work that was recorded, to be done again and again.
class DeviceGraph {
public:
    virtual ~DeviceGraph() = default;
    /// On this thread's stream, as if it were given anew.
    virtual void launch() = 0;
};

/// Calls of verbs may return before the work is done; copies to the host wait for it.
class Device {
public:
    virtual ~Device() = default;
    /// "cpu", "cuda".
    virtual std::string name() const = 0;
    /// Which one of its kind, the same for all processes of a machine: "GPU-5fdb... (NVIDIA H200)"; empty
    /// where several may share it.
    virtual std::string identity() const { return {}; }
    /// @throws Error naming the bytes asked for when the memory is not there.
    virtual void* allocate(std::size_t bytes) = 0;
    virtual void release(void* data, std::size_t bytes) noexcept = 0;
    virtual void copy_from_host(void* to, const void* from, std::size_t bytes) = 0;
    /// Returns before it is done: `from`, which is memory of staging(), stays as it is until then.
    virtual void upload(void* to, const void* from, std::size_t bytes) { copy_from_host(to, from, bytes); }
    virtual void copy_to_host(void* to, const void* from, std::size_t bytes) = 0;
    /// Sets memory to zeros.
    virtual void clear(void* data, std::size_t bytes) = 0;
    /// Whoever shows spans in the profiler of this kind of device; null: there is none.
    virtual SpanListener* listener() { return nullptr; }
    /// Waits until everything handed to the device so far is done.
    virtual void synchronize() = 0;
    /// True where the host reads and writes device memory directly (the CPU).
    virtual bool host_memory() const = 0;
    /// True for memory of this device.
    virtual bool holds(const void*) const { return host_memory(); }

    /// False where all is done when a call returns (the CPU).
    virtual bool has_streams() const { return false; }
    /// Where this thread's calls go from now on. Returns where they went: compute, before the first call.
    virtual Stream use(Stream) { return Stream::compute; }
    virtual std::unique_ptr<DeviceEvent> make_event() { return std::make_unique<DeviceEvent>(); }
    /// What `work` gives to this thread's stream, and to others that it has follow it and joins again, is
    /// recorded instead of done. `work` may not wait, nor allocate memory of the device. Not for devices of
    /// host memory.
    virtual std::unique_ptr<DeviceGraph> record(const std::function<void()>& work) = 0;
    /// Host memory from which uploads are fastest. It must not outlive this device.
    virtual std::unique_ptr<Device> staging() = 0;
};

/// While it lives, this thread's calls go to another stream, after what they had given to the one before.
class OnStream {
public:
    OnStream(Device& device, Stream stream, DeviceEvent& handover) : device_(device) {
        handover.record();
        before_ = device.use(stream);
        handover.follow();
    }
    ~OnStream() { device_.use(before_); }
    OnStream(const OnStream&) = delete;
    OnStream& operator=(const OnStream&) = delete;

private:
    Device& device_;
    Stream before_;
};

/// "cpu"; or "cuda": of the GPUs that this process may use, the one with this number, modulo how many there
/// are.
/// @throws Error (usage) that names what is missing.
std::unique_ptr<Device> make_device(const std::string& kind, int number = 0);

/// Why there is no "cuda" device: what making one would say; empty where there is one.
std::string cuda_absence();

}  // namespace trireme
