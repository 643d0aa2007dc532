// Collectives on ranks of MPI, a device each, and on several devices of one process.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mpi.h>
#include <nccl.h>

#include <thread>

#include "samples/buffers.hpp"
#include "samples/kernels.hpp"
#include "support/catch.hpp"

using namespace trireme::sample;

namespace {

int world_rank() {
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int world_size() {
    int size = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

// The communicator of all ranks, each on the device of its number.
class World {
public:
    explicit World(bool blocking = true) {
        check(cudaSetDevice(rank));
        ncclUniqueId id{};
        if (rank == 0) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
        MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = blocking ? 1 : 0;
        const ncclResult_t begun = ncclCommInitRankConfig(&comm, size, id, rank, &config);
        REQUIRE(begun == (blocking ? ncclSuccess : ncclInProgress));
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
        REQUIRE(state == ncclSuccess);
    }
    ~World() {
        if (comm != nullptr) ncclCommDestroy(comm);
        cudaSetDevice(0);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    const int rank = world_rank(), size = world_size();
    ncclComm_t comm = nullptr;
};

template <class T>
constexpr ncclDataType_t type_of = ncclFloat32;
template <>
constexpr ncclDataType_t type_of<double> = ncclFloat64;
template <>
constexpr ncclDataType_t type_of<__nv_bfloat16> = ncclBfloat16;
template <>
constexpr ncclDataType_t type_of<__half> = ncclFloat16;
template <>
constexpr ncclDataType_t type_of<std::int8_t> = ncclInt8;
template <>
constexpr ncclDataType_t type_of<std::int32_t> = ncclInt32;
template <>
constexpr ncclDataType_t type_of<std::int64_t> = ncclInt64;
template <>
constexpr ncclDataType_t type_of<std::uint64_t> = ncclUint64;

// Small integers, whose sums are exact in every type; by rank and position.
double value(int rank, std::size_t i) {
    return static_cast<double>((static_cast<std::size_t>(rank) * 3 + i) % 8);
}

template <class T>
std::vector<T> values(int rank, std::size_t count) {
    std::vector<T> v;
    for (std::size_t i = 0; i < count; ++i) v.push_back(T(static_cast<float>(value(rank, i))));
    return v;
}

template <class F>
double over_ranks(int size, double start, F f) {
    double result = start;
    for (int r = 0; r < size; ++r) result = f(result, r);
    return result;
}

template <class T>
double number(T v) {
    return static_cast<double>(static_cast<float>(v));
}

}  // namespace

TEMPLATE_TEST_CASE("collectives are exact", "[cudaemu-ranks]", float, double, __nv_bfloat16, __half,
                   std::int8_t, std::int32_t, std::int64_t, std::uint64_t) {
    using T = TestType;
    World w;
    const Stream s;
    for (const std::size_t n : {std::size_t{1}, std::size_t{7}, std::size_t{1000}}) {
        const auto all = n * static_cast<std::size_t>(w.size), mine = n * static_cast<std::size_t>(w.rank);
        const Buffer<T> in(values<T>(w.rank, all)), sum(all), max(all), min(all), part(n), whole(all),
            sent(all);
        CHECK(ncclAllReduce(in, sum, all, type_of<T>, ncclSum, w.comm, s) == ncclSuccess);
        CHECK(ncclAllReduce(in, max, all, type_of<T>, ncclMax, w.comm, s) == ncclSuccess);
        CHECK(ncclAllReduce(in, min, all, type_of<T>, ncclMin, w.comm, s) == ncclSuccess);
        CHECK(ncclReduceScatter(in, part, n, type_of<T>, ncclSum, w.comm, s) == ncclSuccess);
        CHECK(ncclAllGather(in, whole, n, type_of<T>, w.comm, s) == ncclSuccess);
        CHECK(ncclBroadcast(in, sent, all, type_of<T>, w.size - 1, w.comm, s) == ncclSuccess);
        s.wait();
        const auto got_sum = sum.get(), got_max = max.get(), got_min = min.get(), got_part = part.get();
        const auto got_whole = whole.get(), got_sent = sent.get();
        for (std::size_t i = 0; i < all; ++i) {
            const auto v = [&](int r) { return value(r, i); };
            CHECK(number(got_sum[i]) == over_ranks(w.size, 0, [&](double a, int r) { return a + v(r); }));
            CHECK(number(got_max[i]) ==
                  over_ranks(w.size, 0, [&](double a, int r) { return std::max(a, v(r)); }));
            CHECK(number(got_min[i]) ==
                  over_ranks(w.size, 9, [&](double a, int r) { return std::min(a, v(r)); }));
            CHECK(number(got_whole[i]) == value(static_cast<int>(i / n), i % n));
            CHECK(number(got_sent[i]) == value(w.size - 1, i));
        }
        for (std::size_t i = 0; i < n; ++i) {
            const double wanted =
                over_ranks(w.size, 0, [&](double a, int r) { return a + value(r, mine + i); });
            CHECK(number(got_part[i]) == wanted);
        }
    }
}

TEST_CASE("collectives in place, and reductions to one rank", "[cudaemu-ranks]") {
    World w;
    const Stream s;
    const std::size_t n = 100, all = n * static_cast<std::size_t>(w.size),
                      mine = n * static_cast<std::size_t>(w.rank);
    const Buffer<float> x(values<float>(w.rank, all)), y(values<float>(w.rank, all)),
        z(values<float>(w.rank, all));
    CHECK(ncclReduceScatter(x, x + mine, n, ncclFloat32, ncclAvg, w.comm, s) == ncclSuccess);
    CHECK(ncclAllGather(x + mine, x, n, ncclFloat32, w.comm, s) == ncclSuccess);
    CHECK(ncclAllReduce(y, y, all, ncclFloat32, ncclSum, w.comm, s) == ncclSuccess);
    CHECK(ncclReduce(z, z, all, ncclFloat32, ncclSum, 0, w.comm, s) == ncclSuccess);
    s.wait();
    const auto averages = x.get(), sums = y.get(), at_root = z.get();
    for (std::size_t i = 0; i < all; ++i) {
        const double sum = over_ranks(w.size, 0, [&](double a, int r) { return a + value(r, i); });
        CHECK(averages[i] == static_cast<float>(static_cast<float>(sum) / static_cast<float>(w.size)));
        CHECK(sums[i] == sum);
        CHECK(at_root[i] == (w.rank == 0 ? sum : value(w.rank, i)));
    }
    CHECK(ncclAllReduce(x, x + 1, n - 1, ncclFloat32, ncclSum, w.comm, s) == ncclInvalidArgument);  // overlap
}

TEST_CASE("a ring of sends and receives in a group", "[cudaemu-ranks]") {
    World w;
    const Stream s;
    const Buffer<float> out(std::vector<float>(10, static_cast<float>(w.rank))), in(10);
    const int next = (w.rank + 1) % w.size, before = (w.rank + w.size - 1) % w.size;
    for (int turn = 0; turn < 2; ++turn) {
        CHECK(ncclGroupStart() == ncclSuccess);
        CHECK(ncclSend(out, 10, ncclFloat32, next, w.comm, s) == ncclSuccess);
        CHECK(ncclRecv(in, 10, ncclFloat32, before, w.comm, s) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
    }
    s.wait();
    CHECK(in.get() == std::vector<float>(10, static_cast<float>(before)));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("communicators split by color, in the order of their keys", "[cudaemu-ranks]") {
    World w;
    const Stream s, t;
    ncclComm_t pair = nullptr, none = nullptr;
    REQUIRE(ncclCommSplit(w.comm, w.rank / 2, -w.rank, &pair, nullptr) == ncclSuccess);
    REQUIRE(ncclCommSplit(w.comm, w.rank == 0 ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr) == ncclSuccess);
    CHECK((none != nullptr) == (w.rank == 0));
    int rank = -1, size = -1;
    CHECK(ncclCommCount(pair, &size) == ncclSuccess);
    CHECK(ncclCommUserRank(pair, &rank) == ncclSuccess);
    const int first = w.rank / 2 * 2, members = std::min(2, w.size - first);
    CHECK(size == members);
    CHECK(rank == members - 1 - (w.rank - first));
    const Buffer<float> x(std::vector<float>{static_cast<float>(w.rank)}), y(std::vector<float>{1});
    // Streams need not be the same on each rank.
    CHECK(ncclAllReduce(x, x, 1, ncclFloat32, ncclMax, pair, w.rank % 2 == 0 ? s : t) == ncclSuccess);
    CHECK(ncclAllReduce(y, y, 1, ncclFloat32, ncclSum, w.comm, t) == ncclSuccess);
    check(cudaDeviceSynchronize());
    CHECK(x.get()[0] == static_cast<float>(first + members - 1));
    CHECK(y.get()[0] == static_cast<float>(w.size));
    CHECK(ncclCommDestroy(pair) == ncclSuccess);
    CHECK(ncclCommDestroy(none) == ncclSuccess);
}

TEST_CASE("communicators that do not block", "[cudaemu-ranks]") {
    World w(false);
    const Stream s;
    const Buffer<float> x(std::vector<float>{1});
    CHECK(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, w.comm, s) == ncclSuccess);
    CHECK(ncclCommFinalize(w.comm) == ncclInProgress);
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(w.comm, &state) == ncclSuccess);
    CHECK(state == ncclSuccess);
    s.wait();
    CHECK(x.get()[0] == static_cast<float>(w.size));
}

TEST_CASE("collectives are replayed on all ranks, between eager ones", "[cudaemu-ranks]") {
    World w;
    const Stream s, traffic;
    const Buffer<float> x(std::vector<float>(100, 1)), y(std::vector<float>(100, 1));
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    add(x, 1, 100, s);
    order(s, traffic);
    CHECK(ncclAllReduce(x, x, 100, ncclFloat32, ncclSum, w.comm, traffic) == ncclSuccess);
    order(traffic, s);
    check(cudaStreamEndCapture(s, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    float wanted = 1;
    for (int turn = 0; turn < 3; ++turn) {
        check(cudaGraphLaunch(exec, s));
        CHECK(ncclAllReduce(y, y, 100, ncclFloat32, ncclMax, w.comm, traffic) == ncclSuccess);
        wanted = (wanted + 1) * static_cast<float>(w.size);
    }
    s.wait();
    check(cudaStreamSynchronize(traffic));
    CHECK(x.get()[50] == wanted);
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
}

TEST_CASE("several devices of one process form a communicator", "[cudaemu]") {
    ncclComm_t comms[3];
    const int list[] = {2, 0, 1};
    REQUIRE(ncclCommInitAll(comms, 3, list) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    std::vector<std::unique_ptr<Stream>> streams;
    std::vector<std::unique_ptr<Buffer<float>>> buffers;
    for (int r = 0; r < 3; ++r) {
        check(cudaSetDevice(list[r]));
        streams.push_back(std::make_unique<Stream>());
        buffers.push_back(std::make_unique<Buffer<float>>(std::vector<float>(10, static_cast<float>(r + 1))));
        const auto& b = *buffers.back();
        CHECK(ncclAllReduce(b, b, 10, ncclFloat32, ncclSum, comms[r], *streams.back()) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (const auto& s : streams) s->wait();
    for (const auto& b : buffers) CHECK(b->get()[9] == 6);
    CHECK(ncclAllReduce(*buffers[0], *buffers[0], 10, ncclFloat32, ncclSum, comms[1], *streams[1]) ==
          ncclInvalidArgument);  // another device's memory
    for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
    const int twice[] = {1, 1};
    CHECK(ncclCommInitAll(comms, 2, twice) == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(nullptr)).find("share a device") != std::string::npos);
    check(cudaSetDevice(0));
}

TEST_CASE("an abort ends what is under way", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(std::vector<float>(10, 1));
    ncclComm_t comms[2];
    REQUIRE(ncclCommInitAll(comms, 2, nullptr) == ncclSuccess);
    CHECK(ncclAllReduce(x, x, 10, ncclFloat32, ncclSum, comms[0], s) ==
          ncclSuccess);  // the other never comes
    CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
    std::thread dog([&] { CHECK(ncclCommAbort(comms[0]) == ncclSuccess); });
    s.wait();
    dog.join();
    CHECK(x.get()[3] == 1);
    CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
}
