// A launch keeps a copy of the arguments until the stream comes to it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

namespace trireme::cudaemu {

// True for what a kernel on the current device may follow: its memory, pinned memory, or null.
bool reachable(const void*);
cudaError_t bad_argument(const void* kernel, int position);

// Runs one thread; the threads of the launch share what was bound.
using Body = void (*)(const void* bound);
cudaError_t enqueue_launch(const cudaLaunchConfig_t&, const void* kernel, Body,
                           std::shared_ptr<const void> bound);

// How to launch a kernel from untyped arguments, for cudaLaunchKernelExC.
using Untyped = cudaError_t (*)(const cudaLaunchConfig_t&, const void* kernel, void** args);
void know(const void* kernel, Untyped);

template <class... P>
struct Bound {
    void (*kernel)(P...);
    std::tuple<P...> args;

    static cudaError_t launch(const cudaLaunchConfig_t& config, Bound values) {
        const auto* kernel = reinterpret_cast<const void*>(values.kernel);
        int position = 0, bad = -1;
        const auto look = [&]<class T>(const T& a) {
            if constexpr (std::is_pointer_v<T>) {
                if (bad < 0 && !reachable(reinterpret_cast<const void*>(a))) bad = position;
            }
            ++position;
        };
        std::apply([&](const auto&... a) { (look(a), ...); }, values.args);
        if (bad >= 0) return bad_argument(kernel, bad);
        return enqueue_launch(
            config, kernel,
            [](const void* p) {
                const auto& b = *static_cast<const Bound*>(p);
                std::apply(b.kernel, b.args);
            },
            std::make_shared<const Bound>(std::move(values)));
    }

    static cudaError_t launch_untyped(const cudaLaunchConfig_t& config, const void* kernel, void** args) {
        return [&]<std::size_t... i>(std::index_sequence<i...>) {
            return launch(config, {reinterpret_cast<void (*)(P...)>(const_cast<void*>(kernel)),
                                   std::tuple<P...>(*static_cast<std::remove_reference_t<P>*>(args[i])...)});
        }
        (std::index_sequence_for<P...>());
    }
};

// Makes a kernel known to cudaLaunchKernelExC, which has only its address; every typed launch does it too.
template <class... P>
void know(void (*kernel)(P...)) {
    know(reinterpret_cast<const void*>(kernel), &Bound<P...>::launch_untyped);
}

}  // namespace trireme::cudaemu

template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... args) {
    trireme::cudaemu::know(kernel);
    return trireme::cudaemu::Bound<P...>::launch(*config,
                                                 {kernel, std::tuple<P...>(std::forward<A>(args)...)});
}
