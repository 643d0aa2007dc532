// Capture into graphs: what is replayed, and what may not be done meanwhile.
#include <cublasLt.h>
#include <nccl.h>

#include <thread>

#include "samples/buffers.hpp"
#include "samples/kernels.hpp"
#include "support/catch.hpp"

using namespace trireme::sample;

namespace {

class Graph {
public:
    Graph() = default;
    ~Graph() {
        if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
        if (graph != nullptr) cudaGraphDestroy(graph);
    }
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    cudaGraphExec_t exec() {
        if (exec_ == nullptr) check(cudaGraphInstantiate(&exec_, graph, 0));
        return exec_;
    }
    std::size_t nodes() const {
        std::size_t count = 0;
        check(cudaGraphGetNodes(graph, nullptr, &count));
        return count;
    }

    cudaGraph_t graph = nullptr;

private:
    cudaGraphExec_t exec_ = nullptr;
};

void begin(cudaStream_t s, cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    check(cudaStreamBeginCapture(s, mode));
}

// What a capture ends with, in which `call` was made.
template <class F>
cudaError_t end_after(cudaStream_t s, F call) {
    begin(s);
    call();
    Graph g;
    const cudaError_t e = cudaStreamEndCapture(s, &g.graph);
    CHECK((e == cudaSuccess) == (g.graph != nullptr));
    cudaGetLastError();
    return e;
}

}  // namespace

TEST_CASE("a graph replays kernels, copies and fills", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(100), y(100);
    Pinned<float> in(100), out(100);
    Graph g;
    begin(s);
    cudaStreamCaptureStatus status{};
    unsigned long long id = 0;
    CHECK(cudaStreamIsCapturing(s, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    CHECK(cudaStreamGetCaptureInfo(s, &status, &id, nullptr, nullptr, nullptr, nullptr) == cudaSuccess);
    CHECK(id != 0);
    check(cudaMemcpyAsync(x, in, x.bytes(), cudaMemcpyHostToDevice, s));
    check(cudaMemsetAsync(y, 0, y.bytes(), s));
    float by = 1;
    add(x, by, 100, s);
    by = 1000;  // the argument was taken when it was captured
    check(cudaMemcpyAsync(out, x, x.bytes(), cudaMemcpyDeviceToHost, s));
    check(cudaStreamEndCapture(s, &g.graph));
    CHECK(g.nodes() == 4);
    CHECK(cudaStreamIsCapturing(s, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    out[5] = -1;
    check(cudaGraphUpload(g.exec(), s));
    s.wait();
    CHECK(out[5] == -1);  // nothing ran yet
    for (int turn = 0; turn < 3; ++turn) {
        in[5] = static_cast<float>(turn);
        check(cudaGraphLaunch(g.exec(), s));
        s.wait();
        CHECK(out[5] == static_cast<float>(turn) + 1);
    }
}

TEST_CASE("captured work forks to other streams and joins again", "[cudaemu]") {
    const Stream s, t;
    const Buffer<float> x(std::vector<float>(100, 0)), y(std::vector<float>(100, 0));
    Graph g;
    begin(s);
    add(x, 1, 100, s);
    order(s, t);
    add(y, 2, 100, t);
    add(x, 1, 100, s);
    order(t, s);
    cast<float>(y.data(), x.data(), 100, s);
    check(cudaStreamEndCapture(s, &g.graph));
    for (int i = 0; i < 2; ++i) check(cudaGraphLaunch(g.exec(), t));  // any stream may replay it
    t.wait();
    CHECK(y.get()[7] == 4);
    CHECK(x.get()[7] == 4);
}

TEST_CASE("launches of a graph come after each other, on whichever streams", "[cudaemu]") {
    const Stream s, t;
    const Buffer<float> x(std::vector<float>(100, 0));
    Graph g;
    begin(s);
    add(x, 1, 100, s);
    check(cudaStreamEndCapture(s, &g.graph));
    for (int i = 0; i < 4; ++i) check(cudaGraphLaunch(g.exec(), i % 2 == 0 ? s : t));
    check(cudaDeviceSynchronize());
    CHECK(x.get()[7] == 4);
}

TEST_CASE("an executable graph takes new arguments, but no new shape", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(std::vector<float>(100, 0));
    Graph g, same, longer, other;
    const auto capture = [&](Graph& graph, auto work) {
        begin(s);
        work();
        check(cudaStreamEndCapture(s, &graph.graph));
    };
    capture(g, [&] { add(x, 1, 100, s); });
    capture(same, [&] { add(x, 10, 100, s); });
    capture(longer, [&] {
        add(x, 1, 100, s);
        add(x, 1, 100, s);
    });
    capture(other, [&] { check(cudaMemsetAsync(x, 0, x.bytes(), s)); });
    check(cudaGraphLaunch(g.exec(), s));
    cudaGraphExecUpdateResultInfo info{};
    CHECK(cudaGraphExecUpdate(g.exec(), same.graph, &info) == cudaSuccess);
    check(cudaGraphLaunch(g.exec(), s));
    s.wait();
    CHECK(x.get()[7] == 11);
    CHECK(cudaGraphExecUpdate(g.exec(), longer.graph, &info) == cudaErrorGraphExecUpdateFailure);
    CHECK(info.result == cudaGraphExecUpdateErrorTopologyChanged);
    CHECK(cudaGraphExecUpdate(g.exec(), other.graph, &info) == cudaErrorGraphExecUpdateFailure);
    CHECK(info.result == cudaGraphExecUpdateErrorNodeTypeChanged);
    cudaGetLastError();
    check(cudaGraphLaunch(g.exec(), s));  // as it was
    s.wait();
    CHECK(x.get()[7] == 21);
}

TEST_CASE("what may not be done during a capture is an error and ends it", "[cudaemu]") {
    const Stream s, t;
    const Buffer<float> x(100);
    std::vector<float> pageable(100);
    void* p = nullptr;
    const Event uncaptured;
    check(cudaEventRecord(uncaptured, t));
    const auto spoils = [&](cudaError_t expected, auto call) {
        return end_after(s, [&] { CHECK(call() == expected); }) == cudaErrorStreamCaptureInvalidated;
    };
    const auto unsupported = cudaErrorStreamCaptureUnsupported;
    CHECK(spoils(unsupported, [&] { return cudaStreamSynchronize(s); }));
    CHECK(spoils(unsupported, [&] { return cudaStreamQuery(s); }));
    CHECK(spoils(unsupported, [&] { return cudaDeviceSynchronize(); }));
    CHECK(spoils(unsupported, [&] { return cudaEventQuery(uncaptured); }));
    CHECK(spoils(unsupported, [&] { return cudaMalloc(&p, 100); }));
    CHECK(spoils(unsupported, [&] { return cudaFree(x); }));
    CHECK(spoils(unsupported, [&] { return cudaMallocHost(&p, 100); }));
    CHECK(spoils(unsupported,
                 [&] { return cudaMemcpyAsync(x, pageable.data(), x.bytes(), cudaMemcpyHostToDevice, s); }));
    CHECK(spoils(cudaErrorStreamCaptureImplicit, [&] { return cudaMemsetAsync(x, 0, x.bytes(), nullptr); }));
    CHECK(spoils(cudaErrorStreamCaptureIsolation, [&] { return cudaStreamWaitEvent(s, uncaptured, 0); }));
    CHECK(spoils(unsupported, [&] {
        cudaError_t other = cudaSuccess;  // the capture is global
        std::thread([&] { other = cudaMalloc(&p, 100); }).join();
        return other;
    }));
    CHECK(spoils(unsupported, [&] {
        const cudaError_t e = cudaMalloc(&p, 100);
        CHECK(cudaMemsetAsync(x, 0, x.bytes(), s) == cudaErrorStreamCaptureInvalidated);
        return e;
    }));
    CHECK(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal) == unsupported);
    cudaGetLastError();
    add(x, 1, 100, s);  // and the stream is as good as before
    s.wait();
}

TEST_CASE("a thread-local capture lets other threads allocate", "[cudaemu]") {
    const Stream s;
    Graph g;
    begin(s, cudaStreamCaptureModeThreadLocal);
    std::thread([] { const Buffer<float> x(100); }).join();
    check(cudaStreamEndCapture(s, &g.graph));
    CHECK(g.nodes() == 0);
}

TEST_CASE("streams that are not joined, or belong to another capture, are errors", "[cudaemu]") {
    const Stream s, t;
    const Buffer<float> x(100);
    CHECK(end_after(s, [&] {
              order(s, t);
              add(x, 1, 100, t);
          }) == cudaErrorStreamCaptureUnjoined);
    CHECK(end_after(s, [&] {
              order(s, t);
              order(t, s);
              add(x, 1, 100, t);  // after it was joined
          }) == cudaErrorStreamCaptureUnjoined);
    CHECK(end_after(s, [&] { order(s, t); }) == cudaSuccess);  // nothing was done there
    CHECK(end_after(s, [&] {
              order(s, t);
              Graph g;
              CHECK(cudaStreamEndCapture(t, &g.graph) == cudaErrorStreamCaptureUnmatched);
          }) == cudaErrorStreamCaptureInvalidated);
    const Event e;
    begin(s);
    begin(t);
    check(cudaEventRecord(e, s));
    CHECK(cudaStreamWaitEvent(t, e, 0) == cudaErrorStreamCaptureMerge);
    Graph g, h;
    CHECK(cudaStreamEndCapture(s, &g.graph) == cudaSuccess);
    CHECK(cudaStreamEndCapture(t, &h.graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(cudaEventQuery(e) == cudaErrorCapturedEvent);
    CHECK(cudaStreamEndCapture(s, &g.graph) == cudaErrorIllegalState);
    cudaGetLastError();
}

TEST_CASE("products and collectives are captured", "[cudaemu]") {
    const Stream s, traffic;
    const Buffer<float> a(std::vector<float>(64, 1)), b(std::vector<float>(64, 2)), c(64);
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t how = nullptr;
    cublasLtMatrixLayout_t layout = nullptr;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 8, 8);
    // Ended after the graphs, for which NCCL would wait.
    struct Comms {
        ncclComm_t comm[2] = {};
        ~Comms() {
            for (ncclComm_t each : comm) CHECK(ncclCommDestroy(each) == ncclSuccess);
        }
    } comms;
    REQUIRE(ncclCommInitAll(comms.comm, 2, nullptr) == ncclSuccess);
    check(cudaSetDevice(1));
    const Stream other;
    const Buffer<float> d(std::vector<float>(64, 1));
    check(cudaSetDevice(0));
    Graph g, h;
    begin(s);
    float alpha = 1, beta = 0;
    CHECK(cublasLtMatmul(handle, how, &alpha, a, layout, b, layout, &beta, c, layout, c, layout, nullptr,
                         nullptr, 0, s) == CUBLAS_STATUS_SUCCESS);
    alpha = 100;  // its value was taken
    order(s, traffic);
    CHECK(ncclAllReduce(c, c, 64, ncclFloat32, ncclSum, comms.comm[0], traffic) == ncclSuccess);
    order(traffic, s);
    add(c, 1, 64, s);
    check(cudaStreamEndCapture(s, &g.graph));
    begin(other);
    CHECK(ncclAllReduce(d, d, 64, ncclFloat32, ncclSum, comms.comm[1], other) == ncclSuccess);
    check(cudaStreamEndCapture(other, &h.graph));
    for (int turn = 0; turn < 3; ++turn) {
        check(cudaGraphLaunch(g.exec(), s));
        check(cudaGraphLaunch(h.exec(), other));
        s.wait();
        check(cudaStreamSynchronize(other));
        const float before = turn == 0 ? 1.0f : 16.0f * static_cast<float>(turn) + 1;
        CHECK(c.get()[9] == 16 + before + 1);
        CHECK(d.get()[9] == 16 + before);
    }
    cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
}
