// What threads of a kernel know of themselves and how they meet: built-in variables, barriers, shuffles.
#pragma once

#include <vector_functions.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

namespace trireme::cudaemu {

// Where device code calls; std::source_location would do, but clang 14 (clang-tidy) has none.
struct Site {
    const char* file = "";
    unsigned line = 0;

    static constexpr Site current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
        return {file, line};
    }
    friend bool operator==(const Site&, const Site&) = default;
};

enum class Vote { none, any, all, count };

int block_barrier(Vote, bool, Site);
void* dynamic_shared();

// The lanes of a mask put in a value each and get one of theirs.
std::uint64_t shuffle(unsigned mask, std::uint64_t value, int from, Site);
unsigned ballot(unsigned mask, bool, Site);
int lane();
[[noreturn]] void fault(const char* what, Site);
void fence();

template <class T>
std::uint64_t pack(T v) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= sizeof(std::uint64_t));
    std::uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const void*>(&v), sizeof v);
    return bits;
}

template <class T>
T shuffled(unsigned mask, T v, int from, Site at) {
    const std::uint64_t bits = shuffle(mask, pack(v), from, at);
    std::memcpy(static_cast<void*>(&v), &bits, sizeof v);
    return v;
}

}  // namespace trireme::cudaemu

inline void __syncthreads(trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    trireme::cudaemu::block_barrier(trireme::cudaemu::Vote::none, false, at);
}
inline int __syncthreads_or(int p, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return trireme::cudaemu::block_barrier(trireme::cudaemu::Vote::any, p != 0, at);
}
inline int __syncthreads_and(int p, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return trireme::cudaemu::block_barrier(trireme::cudaemu::Vote::all, p != 0, at);
}
inline int __syncthreads_count(int p, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return trireme::cudaemu::block_barrier(trireme::cudaemu::Vote::count, p != 0, at);
}

inline void __syncwarp(unsigned mask = ~0u, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    trireme::cudaemu::ballot(mask, false, at);
}
inline unsigned __ballot_sync(unsigned mask, int p,
                              trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return trireme::cudaemu::ballot(mask, p != 0, at);
}
inline int __any_sync(unsigned mask, int p, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return __ballot_sync(mask, p, at) != 0;
}
inline int __all_sync(unsigned mask, int p, trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return __ballot_sync(mask, p, at) == mask;
}

template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = warpSize,
              trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    return trireme::cudaemu::shuffled(mask, v,
                                      (trireme::cudaemu::lane() & ~(width - 1)) | (from & (width - 1)), at);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = warpSize,
                  trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    const int self = trireme::cudaemu::lane(), from = self ^ bits;
    return trireme::cudaemu::shuffled(mask, v, from / width > self / width ? self : from, at);
}

template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = warpSize,
                   trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    const int self = trireme::cudaemu::lane(), from = self + static_cast<int>(by);
    return trireme::cudaemu::shuffled(mask, v, from / width != self / width ? self : from, at);
}

template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = warpSize,
                 trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    const int self = trireme::cudaemu::lane(), from = self - static_cast<int>(by);
    return trireme::cudaemu::shuffled(mask, v, from < (self & ~(width - 1)) ? self : from, at);
}

inline void __threadfence() {
    trireme::cudaemu::fence();
}
inline void __threadfence_block() {
    trireme::cudaemu::fence();
}
[[noreturn]] inline void __trap(trireme::cudaemu::Site at = trireme::cudaemu::Site::current()) {
    trireme::cudaemu::fault("__trap()", at);
}
