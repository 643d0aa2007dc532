// CUDA's atomic functions: relaxed, as on a device, so that they order nothing for the race detector.
#pragma once

#include <atomic>
#include <concepts>
#include <type_traits>

namespace trireme::cudaemu {

// Puts f(old) in place of old, which it returns.
template <class T, class F>
T replace(T* p, F f) {
    std::atomic_ref<T> a(*p);
    T old = a.load(std::memory_order_relaxed);
    while (!a.compare_exchange_weak(old, f(old), std::memory_order_relaxed)) {
    }
    return old;
}

}  // namespace trireme::cudaemu

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> v) {
    return std::atomic_ref<T>(*p).fetch_add(v, std::memory_order_relaxed);
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> v) {
    return std::atomic_ref<T>(*p).fetch_sub(v, std::memory_order_relaxed);
}
template <std::integral T>
T atomicOr(T* p, std::type_identity_t<T> v) {
    return std::atomic_ref<T>(*p).fetch_or(v, std::memory_order_relaxed);
}
template <std::integral T>
T atomicAnd(T* p, std::type_identity_t<T> v) {
    return std::atomic_ref<T>(*p).fetch_and(v, std::memory_order_relaxed);
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> v) {
    return std::atomic_ref<T>(*p).exchange(v, std::memory_order_relaxed);
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> v) {
    std::atomic_ref<T>(*p).compare_exchange_strong(expected, v, std::memory_order_relaxed);
    return expected;
}
template <std::integral T>
T atomicMax(T* p, std::type_identity_t<T> v) {
    return trireme::cudaemu::replace(p, [v](T old) { return old < v ? v : old; });
}
template <std::integral T>
T atomicMin(T* p, std::type_identity_t<T> v) {
    return trireme::cudaemu::replace(p, [v](T old) { return v < old ? v : old; });
}
