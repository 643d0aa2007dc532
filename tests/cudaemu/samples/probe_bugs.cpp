// Seeded bugs, each with what should come out, and twins without the bug.
#include <cublasLt.h>

#include <cstring>
#include <optional>

#include "buffers.hpp"
#include "bugs.hpp"
#include "kernels.hpp"
#include "probe.hpp"

using namespace trireme::sample;

namespace {

constexpr int n = 1000;

void produce_and_consume(bool with_event) {
    const Stream s, t;
    Buffer<float> y(n);
    Pinned<float> pinned(n);
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    s.wait();
    add(y, 1, n, s);
    if (with_event) order(s, t);
    check(cudaMemcpyAsync(pinned, y, y.bytes(), cudaMemcpyDeviceToHost, t));
    t.wait();
    expect("what was produced", pinned[7], 1);
    s.wait();
}

// An unrelated kernel of t between the two must not hide that they are unordered.
void kernel_after_kernel(bool with_event) {
    const Stream s, t;
    Buffer<float> x(n), y(n), z(n);
    check(cudaMemsetAsync(x, 0, x.bytes(), s));
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    s.wait();
    add(y, 1, n, s);
    add(x, 1, n, t);
    if (with_event) order(s, t);
    cast<float>(y.data(), z.data(), n, t);
    t.wait();
    s.wait();
    if (with_event) expect("what was produced", z.get()[7], 1);
}

void overwrite(bool with_event) {
    const Stream s, t;
    Buffer<float> y(n);
    Pinned<float> pinned(n);
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    s.wait();
    check(cudaMemcpyAsync(pinned, y, y.bytes(), cudaMemcpyDeviceToHost, s));
    if (with_event) order(s, t);
    add(y, 1, n, t);
    s.wait();
    t.wait();
    expect("what was copied", pinned[7], 0);
}

void reuse_pinned(bool in_time) {
    const Stream s;
    Buffer<float> y(n);
    Pinned<float> pinned(n);
    for (int i = 0; i < n; ++i) pinned[static_cast<std::size_t>(i)] = 1;
    check(cudaMemcpyAsync(y, pinned, y.bytes(), cudaMemcpyHostToDevice, s));
    if (in_time) s.wait();
    pinned[7] = 2;
    s.wait();
    expect("what was copied", y.get()[7], 1);
}

// Two streams of one graph, which share y.
void captured(bool with_event) {
    const Stream s, t;
    Buffer<float> y(n);
    check(cudaMemset(y, 0, y.bytes()));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
    const Event fork, between, join;
    check(cudaEventRecord(fork, s));
    check(cudaStreamWaitEvent(t, fork, 0));
    add(y, 1, n, s);
    if (with_event) {
        check(cudaEventRecord(between, s));
        check(cudaStreamWaitEvent(t, between, 0));
    }
    add(y, 1, n, t);
    check(cudaEventRecord(join, t));
    check(cudaStreamWaitEvent(s, join, 0));
    check(cudaStreamEndCapture(s, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaGraphLaunch(exec, s));
    check(cudaGraphLaunch(exec, s));
    s.wait();
    expect("after two replays", y.get()[7], 4);
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
}

// Two products at once; each needs a workspace to itself.
void multiply_twice(bool one_workspace) {
    const Stream s, t;
    Buffer<float> a(normals(64)), b(normals(64)), c(64), d(64), one(1024), other(1024);
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatrixLayout_t layout = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8);
    const float alpha = 1, beta = 0;
    cublasLtMatmul(handle, how, &alpha, a, layout, b, layout, &beta, c, layout, c, layout, nullptr, one,
                   one.bytes(), s);
    cublasLtMatmul(handle, how, &alpha, a, layout, b, layout, &beta, d, layout, d, layout, nullptr,
                   one_workspace ? one : other, one.bytes(), t);
    s.wait();
    t.wait();
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
}

}  // namespace

TRIREME_PROBE(past_the_end) {
    const Stream s;
    const Buffer<float> y(n);
    past_the_end(y, n, s);
    s.wait();
}
TRIREME_PROBE(past_shared) {
    const Stream s;
    const Buffer<float> y(n);
    past_shared(y, s);
    s.wait();
}
TRIREME_PROBE(past_dynamic) {
    const Stream s;
    const Buffer<float> y(n);
    past_dynamic(y, s);
    s.wait();
}
TRIREME_PROBE(missing_barrier) {
    const Stream s;
    const auto values = normals(n);
    const Buffer<float> x(values), y(1);
    missing_barrier(x, y, 64, s);
    s.wait();
    double sum = 0;
    for (std::size_t i = 0; i < 64; ++i) sum += values[i];
    expect("the sum", y.get()[0], sum, 1e-3);
}
TRIREME_PROBE(missing_barrier_reuse) {
    const Stream s;
    const auto values = normals(n);
    const Buffer<float> x(values), y(4 * 50);
    missing_barrier_reuse(x, y, 50, s);
    s.wait();
    const auto got = y.get();
    for (std::size_t i = 0; i < got.size(); ++i) expect("a turn's value", got[i], values[i / 50]);
}
TRIREME_PROBE(divergent_barrier) {
    const Stream s;
    const Buffer<float> y(n);
    divergent_barrier(y, s);
    s.wait();
}
TRIREME_PROBE(lost_lane) {
    const Stream s;
    const Buffer<float> y(n);
    lost_lane(y, s);
    s.wait();
}
TRIREME_PROBE(racing_blocks) {
    const Stream s;
    const Buffer<float> y(n);
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    racing_blocks(y, s);
    s.wait();
    expect("the count", y.get()[0], 4);
}
TRIREME_PROBE(host_reads_device) {
    const Buffer<float> y(n);
    volatile float* p = y.data();
    expect("the value", *p, 0);
}
TRIREME_PROBE(kernel_gets_host) {
    const Stream s;
    std::vector<float> host(n);
    add(host.data(), 1, host.size(), s);
    s.wait();
    expect("that it was told", 0, 1);
}
TRIREME_PROBE(use_after_free) {
    const Stream s;
    std::optional<Buffer<float>> y(n);
    float* p = *y;
    add(p, 1, n, s);
    y.reset();
    add(p, 1, n, s);
    s.wait();
    expect("that it was told", 0, 1);
}
TRIREME_PROBE(freed_under_way) {
    const Stream s;
    Buffer<float> keep(n);
    float* p = nullptr;
    check(cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(float)));
    float* inner[1] = {p};  // in a buffer, where the launch cannot see it
    check(cudaFree(p));
    check(cudaMemcpyAsync(inner[0], keep, keep.bytes(), cudaMemcpyDeviceToDevice, s));
    s.wait();
}
TRIREME_PROBE(uninitialised) {
    const Stream s;
    const Buffer<float> y(n);
    add(y, 1, n, s);
    s.wait();
    expect("the sum", y.get()[5], 1);
    expect("that the sum is a number", std::isnan(y.get()[5]) ? 0 : 1, 1);
}
TRIREME_PROBE(missing_event) {
    produce_and_consume(false);
}
TRIREME_PROBE(with_event) {
    produce_and_consume(true);
}
TRIREME_PROBE(missing_event_between_kernels) {
    kernel_after_kernel(false);
}
TRIREME_PROBE(with_event_between_kernels) {
    kernel_after_kernel(true);
}
TRIREME_PROBE(overwritten_in_flight) {
    overwrite(false);
}
TRIREME_PROBE(with_wait) {
    overwrite(true);
}
TRIREME_PROBE(pinned_too_early) {
    reuse_pinned(false);
}
TRIREME_PROBE(pinned_in_time) {
    reuse_pinned(true);
}
TRIREME_PROBE(missing_edge_in_graph) {
    captured(false);
}
TRIREME_PROBE(with_edge_in_graph) {
    captured(true);
}
TRIREME_PROBE(shared_workspace) {
    multiply_twice(true);
}
TRIREME_PROBE(own_workspace) {
    multiply_twice(false);
}
TRIREME_PROBE(not_waited) {
    const Stream s;
    Buffer<float> y(n);
    Pinned<float> pinned(n);
    for (int i = 0; i < n; ++i) pinned[static_cast<std::size_t>(i)] = -1;
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    check(cudaMemcpyAsync(pinned, y, y.bytes(), cudaMemcpyDeviceToHost, s));
    expect("what was copied", pinned[7], 0);
    s.wait();
}
TRIREME_PROBE(overflow_int) {
    const Stream s;
    const Buffer<int> y(32);
    overflow_int(y, s);
    s.wait();
}
TRIREME_PROBE(misaligned) {
    const Stream s;
    const Buffer<float> y(n);
    misaligned(y, s);
    s.wait();
}
TRIREME_PROBE(default_stream) {
    const Buffer<float> y(n);
    add(y, 1, n, nullptr);
}

// All sample kernels, for the barriers in them.
TRIREME_PROBE(samples) {
    const Stream s;
    const int rows = 3, cols = 300;
    const auto values = normals(static_cast<std::size_t>(rows * cols));
    const Buffer<float> x(values), y(values.size()), sums(rows), mean(rows);
    normalize<float>(x, y, mean, rows, cols, 1e-5f, s);
    softmax<float>(x, y, rows, cols, s);
    row_sum<float>(y, sums, rows, cols, s);
    s.wait();
    for (const float sum : sums.get()) expect("the sum of a softmax", sum, 1, 1e-5);
    transpose<float>(x, y, rows, cols, s);
    s.wait();
    expect("a transposed element", y.get()[rows * 7 + 1], values[cols + 7]);
    std::vector<int> numbers;
    for (int i = 0; i < n; ++i) numbers.push_back(i % 10);
    const Buffer<int> in(numbers), counts(10);
    check(cudaMemsetAsync(counts, 0, counts.bytes(), s));
    histogram(in, counts, n, 10, s);
    s.wait();
    for (const int count : counts.get()) expect("a count", count, n / 10);
}
