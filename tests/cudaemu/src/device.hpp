// The devices that the process sees.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <vector>

#include "arena.hpp"

namespace trireme::cudaemu {

struct Device {
    explicit Device(int number_, std::size_t memory) : number(number_), arena(memory) {}

    int number;  // as the machine counts its devices
    Arena arena;
    cudaError_t lost = cudaSuccess;  // after a kernel that failed, every call answers this
};

// TRIREME_EMU_DEVICES of them, less what CUDA_VISIBLE_DEVICES hides.
std::vector<std::unique_ptr<Device>>& devices();
int& current_device();  // of the calling thread
Device& device();       // the current one

// GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx, the same in every process.
std::string uuid_text(int number);

inline constexpr int sm_count = 4;
inline constexpr int threads_per_sm = 2048;
inline constexpr int blocks_per_sm = 32;
inline constexpr std::size_t shared_per_block = 48 * 1024;
inline constexpr std::size_t shared_optin = 227 * 1024;
inline constexpr std::size_t shared_per_sm = 228 * 1024;

// The device whose memory holds all n bytes; -1 where it is none's.
int device_of(const void*, std::size_t n);
inline bool on_device(const void* p, std::size_t n) {
    return device_of(p, n) >= 0;
}
bool is_pinned(const void*, std::size_t n);

// A device's memory can be touched as long as one of these lives, and not otherwise.
class Access {
public:
    explicit Access(int device) : arena_(devices()[static_cast<std::size_t>(device)]->arena) {
        arena_.open();
    }
    ~Access() { arena_.close(); }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

private:
    Arena& arena_;
};

}  // namespace trireme::cudaemu
