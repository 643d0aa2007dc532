#include "ops/cuda/scalars.hpp"

#include <algorithm>

#include "ops/cuda/launch.hpp"
#include "ops/cuda/warp.cuh"

namespace trireme::cuda {
namespace {

constexpr int most_targets = 3;

__device__ inline void add_column(const double* parts, std::int64_t blocks, int terms, int term, double* to) {
    double sum = 0;
    for (std::int64_t b = threadIdx.x; b < blocks; b += threads) sum += parts[b * terms + term];
    sum = block_sum(sum);
    if (threadIdx.x == 0 && to != nullptr) *to += sum;
}

__global__ void __launch_bounds__(threads)
    add_parts_kernel(const double* parts, std::int64_t blocks, int terms, double* a, double* b, double* c) {
    add_column(parts, blocks, terms, 0, a);
    if (terms > 1) add_column(parts, blocks, terms, 1, b);
    if (terms > 2) add_column(parts, blocks, terms, 2, c);
}

__global__ void set_kernel(std::int64_t* flag, std::int64_t value) {
    if (threadIdx.x == 0) *flag = value;
}

}  // namespace

Scalars::Scalars(CudaDevice& device)
    : device_(device), parts_(device), sums_(device, (most_targets + 1) * sizeof(double)) {
    check(cudaHostAlloc(reinterpret_cast<void**>(&host_), sums_.bytes(), cudaHostAllocDefault),
          "cudaHostAlloc");
}

Scalars::~Scalars() {
    if (device_.settle()) cudaFreeHost(host_);
}

bool Scalars::in_host_memory(const Targets& targets) const {
    return std::any_of(targets.begin(), targets.end(),
                       [this](const double* p) { return p != nullptr && !device_.holds(p); });
}

void Scalars::add(const double* parts, std::int64_t blocks, int terms, const Targets& targets) {
    const cudaStream_t stream = device_.stream();
    if (!in_host_memory(targets))
        return launch(stream, {}, add_parts_kernel, parts, blocks, terms, targets[0], targets[1], targets[2]);
    const std::size_t bytes = most_targets * sizeof(double);
    auto* sums = sums_.as<double>();
    check(cudaMemsetAsync(sums, 0, bytes, stream), "cudaMemsetAsync");
    launch(stream, {}, add_parts_kernel, parts, blocks, terms, sums, sums + 1, sums + 2);
    check(cudaMemcpyAsync(host_, sums, bytes, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    device_.synchronize();
    for (std::size_t t = 0; t < most_targets; ++t)
        if (targets[t] != nullptr) *targets[t] += host_[t];
}

std::int64_t* Scalars::flag(std::int64_t value) {
    auto* flag = reinterpret_cast<std::int64_t*>(sums_.as<double>() + most_targets);
    launch(device_.stream(), {}, set_kernel, flag, value);
    return flag;
}

std::int64_t Scalars::wait_for_flag() {
    const cudaStream_t stream = device_.stream();
    auto* to = reinterpret_cast<std::int64_t*>(host_ + most_targets);
    check(cudaMemcpyAsync(to, sums_.as<double>() + most_targets, sizeof *to, cudaMemcpyDeviceToHost, stream),
          "cudaMemcpyAsync");
    device_.synchronize();
    return *to;
}

}  // namespace trireme::cuda
