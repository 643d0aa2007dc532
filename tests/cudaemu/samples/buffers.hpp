// Streams, events and buffers for tests: opened in the constructor, closed in the destructor.
#pragma once

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <random>
#include <vector>

#include "launch.hpp"

namespace trireme::sample {

class Stream {
public:
    Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    ~Stream() { cudaStreamDestroy(stream_); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
    operator cudaStream_t() const { return stream_; }
    void wait() const { check(cudaStreamSynchronize(stream_)); }

private:
    cudaStream_t stream_ = nullptr;
};

class Event {
public:
    explicit Event(unsigned flags = cudaEventDisableTiming) {
        check(cudaEventCreateWithFlags(&event_, flags));
    }
    ~Event() { cudaEventDestroy(event_); }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    operator cudaEvent_t() const { return event_; }

private:
    cudaEvent_t event_ = nullptr;
};

// What `later` does from now on comes after all that `earlier` has been given.
inline void order(cudaStream_t earlier, cudaStream_t later) {
    const Event e;
    check(cudaEventRecord(e, earlier));
    check(cudaStreamWaitEvent(later, e, 0));
}

// Memory of the current device.
template <class T>
class Buffer {
public:
    explicit Buffer(std::size_t n) : size_(n) {
        check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)));
    }
    Buffer(const std::vector<T>& v) : Buffer(v.size()) { set(v); }
    ~Buffer() { cudaFree(data_); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    T* data() const { return data_; }
    operator T*() const { return data_; }
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return size_ * sizeof(T); }
    void set(const std::vector<T>& v) { check(cudaMemcpy(data_, v.data(), bytes(), cudaMemcpyHostToDevice)); }
    std::vector<T> get() const {
        std::vector<T> v(size_);
        check(cudaMemcpy(v.data(), data_, bytes(), cudaMemcpyDeviceToHost));
        return v;
    }

private:
    T* data_ = nullptr;
    std::size_t size_;
};

template <class T>
class Pinned {
public:
    explicit Pinned(std::size_t n) : size_(n) {
        check(cudaHostAlloc(reinterpret_cast<void**>(&data_), n * sizeof(T), cudaHostAllocDefault));
    }
    ~Pinned() { cudaFreeHost(data_); }
    Pinned(const Pinned&) = delete;
    Pinned& operator=(const Pinned&) = delete;
    T& operator[](std::size_t i) { return data_[i]; }
    operator T*() const { return data_; }
    std::size_t bytes() const { return size_ * sizeof(T); }

private:
    T* data_ = nullptr;
    std::size_t size_;
};

inline std::vector<float> normals(std::size_t n, unsigned seed = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> draw;
    std::vector<float> v(n);
    for (float& x : v) x = draw(engine);
    return v;
}

template <class T>
std::vector<T> narrowed(const std::vector<float>& v) {
    std::vector<T> r;
    for (const float x : v) r.push_back(T(x));
    return r;
}

}  // namespace trireme::sample
