#include "support/allocations.hpp"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<std::int64_t> ours{0}, live{0};

// oneDNN builds a map of arguments in every call of a primitive and drops it again: not ours to avoid.
bool inside_onednn(const void* caller) {
    Dl_info info{};
    return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
           std::strstr(info.dli_fname, "dnnl") != nullptr;
}

[[maybe_unused]] void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
    if (counting.load(std::memory_order_relaxed)) {
        live.fetch_add(1, std::memory_order_relaxed);
        if (!inside_onednn(caller)) ours.fetch_add(1, std::memory_order_relaxed);
    }
    void* data = alignment == 0 ? std::malloc(bytes > 0 ? bytes : 1)
                                : std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
    if (data == nullptr) throw std::bad_alloc();
    return data;
}

[[maybe_unused]] void release(void* data) noexcept {
    if (data != nullptr && counting.load(std::memory_order_relaxed))
        live.fetch_sub(1, std::memory_order_relaxed);
    std::free(data);
}

}  // namespace

#ifndef __SANITIZE_ADDRESS__
void* operator new(std::size_t bytes) {
    return allocate(bytes, 0, __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
    return allocate(bytes, 0, __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return allocate(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* data) noexcept {
    release(data);
}
void operator delete[](void* data) noexcept {
    release(data);
}
void operator delete(void* data, std::size_t) noexcept {
    release(data);
}
void operator delete[](void* data, std::size_t) noexcept {
    release(data);
}
void operator delete(void* data, std::align_val_t) noexcept {
    release(data);
}
void operator delete(void* data, std::size_t, std::align_val_t) noexcept {
    release(data);
}
#endif

namespace trireme::testing {

bool can_count_allocations() {
#ifdef __SANITIZE_ADDRESS__
    return false;
#else
    return true;
#endif
}

void count_allocations() {
    ours = 0;
    live = 0;
    counting = true;
}

Allocations allocations() {
    return {ours, live};
}

}  // namespace trireme::testing
