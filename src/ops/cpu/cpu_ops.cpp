#include "ops/cpu/cpu_ops.hpp"

#include <omp.h>

#include <span>

#include "ops/backends.hpp"

namespace trireme {

std::unique_ptr<Ops> make_cpu_ops(Device&, int threads) {
    return std::make_unique<cpu::CpuOps>(threads);
}

std::string math_library_version() {
    return "oneDNN " + cpu::onednn_version();
}

}  // namespace trireme

namespace trireme::cpu {

std::size_t PlanKeyHash::operator()(const PlanKey& key) const {
    std::uint64_t hash = 0xcbf29ce484222325U;
    const auto mix = [&hash](std::int64_t value) {
        hash = (hash ^ static_cast<std::uint64_t>(value)) * 0x9E3779B97F4A7C15U;
        hash ^= hash >> 29;
    };
    const Window& w = key.window;
    mix(static_cast<std::int64_t>(key.verb) * 64 + static_cast<std::int64_t>(key.activation) * 4 +
        key.bias * 2 + key.accumulate);
    mix(static_cast<std::int64_t>(key.operands) * 64 + static_cast<std::int64_t>(key.result) * 4 +
        key.transpose_a * 2 + key.transpose_b);
    for (const std::int64_t extent :
         {w.n, w.c, w.h, w.w, w.out, w.kernel_h, w.kernel_w, w.stride_h, w.stride_w, w.padding_h, w.padding_w,
          w.dilation_h, w.dilation_w, w.groups})
        mix(extent);
    return hash;
}

std::string CpuOps::description() const {
    return "cpu, " + math_library_version() + ", " + std::to_string(threads_) +
           (threads_ == 1 ? " thread" : " threads");
}

bool CpuOps::native(DType type) const {
    return type == DType::f32 || (type == DType::bf16 && bf16_ == Bf16Products::primitives);
}

Bf16Products CpuOps::fastest_bf16_products() {
    return has_fast_bf16() ? Bf16Products::primitives : Bf16Products::float32;
}

// The library has no per-call thread count: it takes the calling thread's OpenMP default.
void CpuOps::set_library_threads() const {
    if (omp_get_max_threads() != threads_) omp_set_num_threads(threads_);
}

void CpuOps::run(Plan& plan, std::initializer_list<void*> pointers) {
    plan.run(library_, std::span(pointers.begin(), pointers.size()),
             plan_scratch_.reserve(plan.scratch_bytes()));
}

}  // namespace trireme::cpu
