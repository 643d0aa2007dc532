// The runtime: devices, memory, streams, events and what a launch may ask for.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "samples/buffers.hpp"
#include "samples/kernels.hpp"
#include "support/catch.hpp"

using namespace trireme::sample;
using namespace std::chrono_literals;

namespace {

// Before anything asks: these tests need more than one.
const int four_devices = setenv("TRIREME_EMU_DEVICES", "4", 0);

class OnDevice {
public:
    explicit OnDevice(int device) { check(cudaSetDevice(device)); }
    ~OnDevice() { cudaSetDevice(0); }
};

bool ended_with(cudaError_t e) {
    return cudaGetLastError() == e && cudaGetLastError() == cudaSuccess;
}

}  // namespace

TEST_CASE("devices tell what they are", "[cudaemu]") {
    int count = 0, device = -1, value = 0;
    REQUIRE(cudaGetDeviceCount(&count) == cudaSuccess);
    REQUIRE(count == 4);
    REQUIRE(cudaGetDevice(&device) == cudaSuccess);
    CHECK(device == 0);
    cudaDeviceProp p{}, q{};
    REQUIRE(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
    REQUIRE(cudaGetDeviceProperties(&q, 3) == cudaSuccess);
    CHECK(std::string(p.name) == "emulated device");
    CHECK(p.major == 9);
    CHECK(p.totalGlobalMem == std::size_t{1} << 32);
    CHECK(std::memcmp(&p.uuid, &q.uuid, sizeof p.uuid) != 0);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
    CHECK(value == p.multiProcessorCount);
    CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0) == cudaSuccess);
    CHECK(static_cast<std::size_t>(value) == p.sharedMemPerBlockOptin);
    char text[16];
    CHECK(cudaDeviceGetPCIBusId(text, sizeof text, 2) == cudaSuccess);
    CHECK(std::string(text) == "0000:03:00.0");
    CHECK(cudaSetDevice(4) == cudaErrorInvalidDevice);
    CHECK(ended_with(cudaErrorInvalidDevice));
    CHECK(std::string(cudaGetErrorName(cudaErrorInvalidDevice)) == "cudaErrorInvalidDevice");
    CHECK(std::string(cudaGetErrorString(cudaErrorInvalidDevice)) == "invalid device ordinal");
    CHECK(cudaRuntimeGetVersion(&value) == cudaSuccess);
    CHECK(value == CUDART_VERSION);
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 256, 0) == cudaSuccess);
    CHECK(blocks == 8);
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nullptr, 256, 100 << 10) == cudaSuccess);
    CHECK(blocks == 2);
}

TEST_CASE("each device has memory and streams of its own", "[cudaemu]") {
    const OnDevice second(1);
    std::size_t before = 0, free = 0, total = 0;
    REQUIRE(cudaMemGetInfo(&before, &total) == cudaSuccess);
    const Buffer<float> x(1000);
    const Stream s;
    REQUIRE(cudaMemGetInfo(&free, &total) == cudaSuccess);
    CHECK(before - free == x.bytes());
    cudaPointerAttributes a{};
    REQUIRE(cudaPointerGetAttributes(&a, x.data() + 999) == cudaSuccess);
    CHECK(a.type == cudaMemoryTypeDevice);
    CHECK(a.device == 1);
    REQUIRE(cudaMemsetAsync(x, 0, x.bytes(), s) == cudaSuccess);
    add(x, 1, 1000, s);
    s.wait();
    {
        const OnDevice third(2);
        const Buffer<float> y(1000);
        const Stream t;
        CHECK_THROWS(add(x, 1, 1000, t));  // no access to the other's memory
        CHECK_THROWS(add(y, 1, 1000, s));  // nor to its streams
        REQUIRE(cudaMemcpyAsync(y, x, x.bytes(), cudaMemcpyDefault, t) == cudaSuccess);
        t.wait();
        CHECK(y.get()[7] == 1);
    }
    cudaGetLastError();
}

TEST_CASE("copies go every way", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(1000), y(1000);
    Pinned<float> pinned(1000);
    std::vector<float> host(1000, 3), back(1000);
    REQUIRE(cudaMemcpyAsync(x, host.data(), x.bytes(), cudaMemcpyHostToDevice, s) == cudaSuccess);
    host.assign(1000, 0);  // what is pageable has been read already
    REQUIRE(cudaMemcpyAsync(y, x, x.bytes(), cudaMemcpyDeviceToDevice, s) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(pinned, y, x.bytes(), cudaMemcpyDeviceToHost, s) == cudaSuccess);
    REQUIRE(cudaMemcpyAsync(back.data(), pinned, x.bytes(), cudaMemcpyHostToHost, s) == cudaSuccess);
    s.wait();
    CHECK(pinned[999] == 3);
    CHECK(back[999] == 3);
    CHECK(cudaMemcpyAsync(x, host.data(), x.bytes(), cudaMemcpyDeviceToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(x, host.data(), x.bytes() + 1, cudaMemcpyHostToDevice, s) == cudaErrorInvalidValue);
    CHECK(cudaMemsetAsync(host.data(), 0, 4, s) == cudaErrorInvalidValue);
    CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
    CHECK(cudaFreeHost(host.data()) == cudaErrorInvalidValue);
    CHECK(ended_with(cudaErrorInvalidValue));
    cudaPointerAttributes a{};
    REQUIRE(cudaPointerGetAttributes(&a, pinned) == cudaSuccess);
    CHECK(a.type == cudaMemoryTypeHost);
    REQUIRE(cudaPointerGetAttributes(&a, host.data()) == cudaSuccess);
    CHECK(a.type == cudaMemoryTypeUnregistered);
}

TEST_CASE("events order streams and tell the time", "[cudaemu]") {
    const Stream s, t;
    const Buffer<float> x(std::vector<float>(1000, 0));
    const Event begin(cudaEventDefault), end(cudaEventDefault), untimed, fresh;
    CHECK(cudaEventQuery(fresh) == cudaSuccess);
    REQUIRE(cudaEventRecord(begin, s) == cudaSuccess);
    add(x, 1, 1000, s);
    order(s, t);
    add(x, 1, 1000, t);
    REQUIRE(cudaEventRecord(end, t) == cudaSuccess);
    REQUIRE(cudaEventSynchronize(end) == cudaSuccess);
    CHECK(cudaEventQuery(end) == cudaSuccess);
    float ms = -1;
    REQUIRE(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
    CHECK(ms >= 0);
    CHECK(cudaEventElapsedTime(&ms, begin, untimed) == cudaErrorInvalidResourceHandle);
    CHECK(ended_with(cudaErrorInvalidResourceHandle));
    CHECK(x.get()[3] == 2);
    const OnDevice second(1);
    CHECK(cudaEventRecord(Event(), s) == cudaErrorInvalidResourceHandle);
    cudaGetLastError();
}

TEST_CASE("a query does not wait, and in the end says that all is done", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(std::vector<float>(1000, 0));
    for (int i = 0; i < 3; ++i) add(x, 1, 1000, s);
    int queries = 0;
    while (cudaStreamQuery(s) == cudaErrorNotReady) ++queries;
    CHECK(queries < 1000);
    CHECK(cudaStreamQuery(s) == cudaSuccess);
    CHECK(cudaGetLastError() == cudaSuccess);  // not ready is no error
    CHECK(x.get()[3] == 3);
}

TEST_CASE("host functions run in the order of their stream, and may not call CUDA", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(std::vector<float>(10, 0));
    Pinned<float> pinned(10);
    struct Seen {
        float* value;
        float was = -1;
        cudaError_t call = cudaSuccess;
    } seen{pinned};
    add(x, 5, 10, s);
    REQUIRE(cudaMemcpyAsync(pinned, x, x.bytes(), cudaMemcpyDeviceToHost, s) == cudaSuccess);
    const auto look = [](void* data) {
        auto& see = *static_cast<Seen*>(data);
        see.was = *see.value;
        see.call = cudaDeviceSynchronize();
    };
    REQUIRE(cudaLaunchHostFunc(s, look, &seen) == cudaSuccess);
    s.wait();
    CHECK(seen.was == 5);
    CHECK(seen.call == cudaErrorNotPermitted);
    cudaGetLastError();
}

TEST_CASE("a destroyed stream still does its work", "[cudaemu]") {
    const Buffer<float> x(std::vector<float>(10, 0));
    {
        const Stream s;
        add(x, 5, 10, s);
    }
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(x.get()[3] == 5);
}

TEST_CASE("threads share the devices", "[cudaemu]") {
    const auto use = [](float* result) {
        const Stream s;
        const Buffer<float> x(std::vector<float>(100, 0));
        for (int i = 0; i < 20; ++i) {
            add(x, 1, 100, s);
            if (i % 5 == 0) s.wait();
        }
        s.wait();
        *result = x.get()[50];
    };
    float results[3] = {};
    std::thread a(use, &results[0]), b(use, &results[1]);
    use(&results[2]);
    a.join();
    b.join();
    for (const float result : results) CHECK(result == 20);
}

TEST_CASE("launches that no device would take are errors", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(10);
    cudaLaunchConfig_t config{};
    config.stream = s;
    const auto refused = [&](dim3 grid, dim3 block) {
        config.gridDim = grid;
        config.blockDim = block;
        void* none[1] = {};
        trireme::sample::row_sum<float>(x, x, 1, 1, s);  // so that the kernel is known
        return cudaLaunchKernelExC(&config, nullptr, none);
    };
    CHECK(refused(dim3(1), dim3(1)) == cudaErrorInvalidDeviceFunction);
    CHECK_THROWS_WITH((row_sum<float>(x, x, 0, 1, s)),
                      trireme::testing::contains("cudaErrorInvalidConfiguration"));
    std::vector<float> host(10);
    CHECK_THROWS_WITH(add(host.data(), 1, 10, s), trireme::testing::contains("cudaErrorInvalidValue"));
    cudaGetLastError();
}
