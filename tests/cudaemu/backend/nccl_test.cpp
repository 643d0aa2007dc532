// The collectives of tests/mpi/comm_test.cpp on device memory, through NCCL and through the host: exact
// values at awkward counts.
#include <cuda_runtime_api.h>
#include <mpi.h>

#include <cstring>
#include <functional>

#include "app/device_detour.hpp"
#include "app/doctor.hpp"
#include "comm/device_communicator.hpp"
#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/ops/ops.hpp"

using namespace trireme;
using trireme::testing::contains;

namespace {

/// All ranks, each on the device of its number.
struct World {
    explicit World(bool nccl) {
        int rank = 0;
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        device = make_device("cuda", rank);
        ops = make_ops(*device, 1);
        comm = std::make_unique<DeviceCommunicator>(
            *device, std::make_unique<MpiCommunicator>(MPI_COMM_WORLD, false), nccl);
    }
    ~World() {
        comm.reset();
        ops.reset();
        device.reset();
        cudaSetDevice(0);
    }
    World(const World&) = delete;
    World& operator=(const World&) = delete;

    int rank() const { return comm->rank(); }
    int size() const { return comm->size(); }

    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
    std::unique_ptr<DeviceCommunicator> comm;
};

/// Elements on the device.
template <class T>
class OnDevice {
public:
    OnDevice(World& world, std::int64_t count, const std::function<double(std::int64_t)>& value,
             DType type = dtype_of<T>)
        : device_(*world.device), count_(count), type_(type) {
        std::vector<T> values(static_cast<std::size_t>(count));
        for (std::int64_t i = 0; i < count; ++i)
            values[static_cast<std::size_t>(i)] = static_cast<T>(value(i));
        buffer_ = Buffer(device_, std::max<std::size_t>(1, count * sizeof(T)));
        device_.copy_from_host(buffer_.data(), values.data(), count * sizeof(T));
    }
    View view() const { return {buffer_.data(), type_, Shape{count_}}; }
    /// Waits for what computes it.
    std::vector<T> values() const {
        std::vector<T> values(static_cast<std::size_t>(count_));
        device_.copy_to_host(values.data(), buffer_.data(), values.size() * sizeof(T));
        return values;
    }
    bool is(const std::function<double(std::int64_t)>& value) const {
        const std::vector<T> found = values();
        for (std::int64_t i = 0; i < count_; ++i)
            if (found[static_cast<std::size_t>(i)] != static_cast<T>(value(i))) return false;
        return true;
    }

private:
    Device& device_;
    std::int64_t count_;
    DType type_;
    Buffer buffer_;
};

/// Parts 0, 1, 2 ... times `unit` long.
std::vector<Range> growing_parts(int ranks, std::int64_t unit) {
    std::vector<Range> parts;
    for (int q = 0; q < ranks; ++q) {
        const std::int64_t begin = q == 0 ? 0 : parts.back().end;
        parts.push_back({begin, begin + unit * q});
    }
    return parts;
}

template <class T>
void check_all_reduce(World& world, std::int64_t count) {
    const int ranks = world.size();
    const OnDevice<T> buffer(world, count, [&](std::int64_t i) { return i % 13 + world.rank(); });
    world.comm->all_reduce(buffer.view(), Reduce::sum);
    CHECK(buffer.is([&](std::int64_t i) { return (i % 13) * ranks + ranks * (ranks - 1) / 2; }));
}

}  // namespace

TEST_CASE("all-reduce on devices is exact at awkward counts", "[nccl]") {
    World world(GENERATE(true, false));
    CHECK((world.comm->backend() == "nccl and mpi" || world.comm->backend() == "host copies and mpi"));
    for (const std::int64_t count : {0, 1, 2, 7, 1009, 65536}) {
        check_all_reduce<float>(world, count);
        check_all_reduce<double>(world, count);
        check_all_reduce<std::int32_t>(world, count);
        check_all_reduce<std::uint64_t>(world, count);
    }
    const OnDevice<float> most(world, 3, [&](std::int64_t i) { return 10 * world.rank() + i; });
    world.comm->all_reduce(most.view(), Reduce::max);
    CHECK(most.is([&](std::int64_t i) { return 10 * (world.size() - 1) + i; }));
    world.comm->all_reduce(most.view(), Reduce::min);
    CHECK(most.is([&](std::int64_t i) { return 10 * (world.size() - 1) + i; }));
}

TEST_CASE("16-bit reals are summed on devices, 16-bit integers are refused", "[nccl]") {
    World world(true);
    for (const DType type : {DType::bf16, DType::f16}) {
        const OnDevice<float> wide(world, 1009, [&](std::int64_t i) { return i % 13 + world.rank(); });
        const OnDevice<std::uint16_t> narrow(
            world, 1009, [](std::int64_t) { return 0; }, type);
        world.ops->copy(wide.view(), narrow.view());
        world.comm->all_reduce(narrow.view(), Reduce::sum);
        world.ops->copy(narrow.view(), wide.view());
        const int ranks = world.size();
        CHECK(wide.is([&](std::int64_t i) { return (i % 13) * ranks + ranks * (ranks - 1) / 2; }));
    }
    const OnDevice<std::int16_t> integers(world, 5, [](std::int64_t i) { return i; });
    if (world.size() == 1) return;  // a group of one has nothing to reduce
    CHECK_THROWS_WITH(world.comm->all_reduce(integers.view(), Reduce::sum),
                      contains("NCCL all-reduce of 10 bytes among") && contains("cannot reduce"));
}

TEST_CASE("collectives come after what was computed, and before what is computed next", "[nccl]") {
    World world(GENERATE(true, false));
    const OnDevice<float> buffer(world, 5003, [](std::int64_t) { return 0; });
    for (int step = 1; step < 4; ++step) {
        world.ops->fill(buffer.view(), static_cast<float>(world.rank() + step));
        world.comm->all_reduce(buffer.view(), Reduce::sum);
        world.ops->add_scaled(buffer.view(), 1.0F, buffer.view());
    }
    const int ranks = world.size();
    CHECK(buffer.is([&](std::int64_t) { return 2 * (ranks * (ranks - 1) / 2 + 3 * ranks); }));
}

TEST_CASE("a broadcast reaches all devices from any root", "[nccl]") {
    World world(GENERATE(true, false));
    for (int root = 0; root < world.size(); ++root) {
        const OnDevice<std::int16_t> buffer(world, 1009,
                                            [&](std::int64_t i) { return i * (world.rank() + 1); });
        world.comm->broadcast(buffer.view(), root);
        CHECK(buffer.is([&](std::int64_t i) { return static_cast<std::int16_t>(i * (root + 1)); }));
    }
}

TEST_CASE("devices gather even and uneven parts", "[nccl]") {
    World world(GENERATE(true, false));
    const int ranks = world.size();
    const OnDevice<float> mine(world, 7, [&](std::int64_t i) { return 100 * world.rank() + i; }),
        all(world, 7 * ranks, [](std::int64_t) { return -1; });
    world.comm->all_gather(mine.view(), all.view());
    CHECK(all.is([](std::int64_t i) { return 100 * (i / 7) + i % 7; }));

    const std::vector<Range> parts = growing_parts(ranks, 1);  // rank 0 has nothing
    const Range own = parts[static_cast<std::size_t>(world.rank())];
    const OnDevice<std::int32_t> uneven(world, parts.back().end,
                                        [&](std::int64_t i) { return own.contains(i) ? i * i : -1; });
    world.comm->all_gather(uneven.view(), parts);
    CHECK(uneven.is([](std::int64_t i) { return i * i; }));
}

TEST_CASE("devices exchange uneven parts", "[nccl]") {
    World world(GENERATE(true, false));
    const int ranks = world.size();
    // Rank r sends (r+1) copies of 10 r + q to rank q.
    std::vector<Range> send_parts, recv_parts;
    std::vector<int> expected;
    for (int q = 0; q < ranks; ++q) {
        const std::int64_t at = q * (world.rank() + 1);
        send_parts.push_back({at, at + world.rank() + 1});
        const auto from = static_cast<std::int64_t>(expected.size());
        expected.insert(expected.end(), static_cast<std::size_t>(q) + 1, 10 * q + world.rank());
        recv_parts.push_back({from, static_cast<std::int64_t>(expected.size())});
    }
    const OnDevice<std::int32_t> send(
        world, send_parts.back().end,
        [&](std::int64_t i) { return 10 * world.rank() + i / (world.rank() + 1); }),
        recv(world, recv_parts.back().end, [](std::int64_t) { return -1; });
    world.comm->all_to_all(send.view(), send_parts, recv.view(), recv_parts);
    CHECK(recv.is([&](std::int64_t i) { return expected[static_cast<std::size_t>(i)]; }));
}

TEST_CASE("sums are dealt out to the devices in even and uneven parts", "[nccl]") {
    World world(GENERATE(true, false));
    const int ranks = world.size();
    std::vector<Range> even;
    for (int q = 0; q < ranks; ++q) even.push_back({5 * q, 5 * q + 5});
    for (const std::vector<Range>& parts : {growing_parts(ranks, 3), even}) {
        const Range mine = parts[static_cast<std::size_t>(world.rank())];
        const OnDevice<float> all(world, parts.back().end,
                                  [&](std::int64_t i) { return i * (world.rank() + 1); }),
            sums(world, mine.size(), [](std::int64_t) { return -1; });
        world.comm->reduce_scatter(all.view(), parts, sums.view(), Reduce::sum);
        const int factor = ranks * (ranks + 1) / 2;
        CHECK(sums.is([&](std::int64_t i) { return (mine.begin + i) * factor; }));
    }
}

TEST_CASE("posted messages between devices arrive in order, in a ring", "[nccl]") {
    World world(GENERATE(true, false));
    const int next = (world.rank() + 1) % world.size(),
              before = (world.rank() + world.size() - 1) % world.size();
    std::vector<Communicator::Ticket> tickets;
    for (int k = 0; k < 5; ++k) {
        const OnDevice<float> sent(world, 1000, [&](std::int64_t) { return 100 * k + world.rank(); });
        tickets.push_back(world.comm->post(sent.view(), next, 7));
    }
    for (int k = 0; k < 5; ++k) {
        const OnDevice<float> got(world, 1000, [](std::int64_t) { return -1; });
        world.comm->receive(got.view(), before, 7);
        CHECK(got.is([&](std::int64_t) { return 100 * k + before; }));
    }
    for (const auto ticket : tickets) world.comm->wait(ticket);
    float value = 3;
    const Communicator::Ticket again = world.comm->post(view_of(&value, Shape{1}), next, 8);
    CHECK(again < 5);  // tickets are used again
    float got = -1;
    world.comm->receive(view_of(&got, Shape{1}), before, 8);
    CHECK(got == 3);
    world.comm->wait(again);
}

namespace {

/// Round all ranks, both ways.
std::vector<Route> ring(int ranks) {
    std::vector<Route> routes;
    for (int rank = 0; rank < ranks; ++rank) {
        routes.push_back({rank, (rank + 1) % ranks, 0});
        routes.push_back({(rank + 1) % ranks, rank, 1});
    }
    return routes;
}

}  // namespace

TEST_CASE("messages on routes are ordered with the streams, both ways at once", "[nccl]") {
    World world(GENERATE(true, false));
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size(),
              before = (world.rank() + world.size() - 1) % world.size();
    for (int again = 0; again < 2; ++again) world.comm->connect(ring(world.size()));
    constexpr int messages = 4;
    const auto zero = [](std::int64_t) { return 0; };
    const OnDevice<float> up(world, 5003, zero), down(world, 5003, zero), from_before(world, 5003, zero),
        from_next(world, 5003, zero), sum(world, 5003, zero);
    for (int k = 1; k <= messages; ++k) {
        // Each is computed just before, and overwritten just after.
        world.ops->fill(up.view(), static_cast<float>(10 * k + world.rank()));
        world.ops->fill(down.view(), static_cast<float>(1000 * k + world.rank()));
        const auto upward = world.comm->post(up.view(), next, 0),
                   downward = world.comm->post(down.view(), before, 1);
        world.comm->receive(from_before.view(), before, 0);
        world.ops->add_scaled(from_before.view(), 1.0F, sum.view());
        world.comm->receive(from_next.view(), next, 1);
        world.ops->add_scaled(from_next.view(), 1.0F, sum.view());
        world.comm->wait(downward);
        world.comm->wait(upward);
    }
    CHECK(sum.is([&](std::int64_t) { return 1010 * 10 + messages * (before + next); }));
}

TEST_CASE("what is posted on a route holds up nothing but what comes after it there", "[nccl]") {
    World world(true);
    if (world.size() == 1) return;
    world.comm->connect(ring(world.size()));
    const bool sends = world.rank() == 0;
    const OnDevice<float> first(world, 1000, [](std::int64_t i) { return i; }),
        second(world, 1000, [](std::int64_t i) { return 2 * i; }),
        other(world, 1000, [](std::int64_t) { return 0; });
    if (sends) {
        const auto one = world.comm->post(first.view(), 1, 0), two = world.comm->post(second.view(), 1, 0);
        world.ops->fill(other.view(), 7);
        CHECK(other.is([](std::int64_t) { return 7; }));  // nobody receives yet
        world.comm->host().barrier();
        world.comm->wait(one);
        world.comm->wait(two);
    } else {
        world.comm->host().barrier();
    }
    if (world.rank() == 1) {
        for (const int factor : {1, 2}) {
            world.comm->receive(other.view(), 0, 0);
            CHECK(other.is([&](std::int64_t i) { return factor * i; }));
        }
    }
    world.comm->barrier();
}

TEST_CASE("messages that go no route, or have no stream, go through the host", "[nccl]") {
    World world(true);
    if (world.size() == 1) return;
    const int next = (world.rank() + 1) % world.size(),
              before = (world.rank() + world.size() - 1) % world.size();
    std::vector<Route> many;
    for (int tag = 0; tag < message_streams; ++tag)
        for (int rank = 0; rank < world.size(); ++rank)
            many.push_back({rank, (rank + 1) % world.size(), tag});
    world.comm->connect(many);
    const OnDevice<float> sent(world, 9, [&](std::int64_t i) { return i + world.rank(); }),
        got(world, 9, [](std::int64_t) { return -1; });
    for (const int tag : {0, 9}) {
        const auto ticket = world.comm->post(sent.view(), next, tag);
        world.comm->receive(got.view(), before, tag);
        world.comm->wait(ticket);
        CHECK(got.is([&](std::int64_t i) { return i + before; }));
    }
}

TEST_CASE("values in host memory and groups of groups of devices", "[nccl]") {
    World world(GENERATE(true, false));
    CHECK(all_reduce_value(*world.comm, 1 + world.rank(), Reduce::max) == world.size());
    CHECK(broadcast_text(*world.comm, world.rank() == 0 ? "from the root" : "") == "from the root");

    const int colour = world.rank() % 2;
    const auto part = world.comm->split(colour, -world.rank());
    const int members = (world.size() + 1 - colour) / 2;
    REQUIRE(part->size() == members);
    CHECK(part->rank() == members - 1 - world.rank() / 2);  // the last comes first
    const OnDevice<float> buffer(world, 1009, [&](std::int64_t) { return world.rank(); });
    part->all_reduce(buffer.view(), Reduce::sum);
    CHECK(buffer.is([&](std::int64_t) { return members * colour + members * (members - 1); }));
    CHECK(part->sequence() != 0);

    world.comm->barrier();
    const auto copy = world.comm->duplicate();
    CHECK(copy->rank() == world.rank());
}

TEST_CASE("doctor's checks of every verb pass on memory of devices", "[nccl]") {
    World world(GENERATE(true, false));
    app::DeviceDetour detour(*world.device, world.comm->duplicate());
    for (const app::doctor::CollectiveCheck& check : app::doctor::collective_checks()) {
        INFO(check.name);
        CHECK(check.wrong_here(detour) == "");
    }
}

TEST_CASE("what NCCL finds out later is a failure of whoever waits, and of all calls after it",
          "[nccl-error]") {
    // The other rank's part never ends: it leaves with an error, and waits for nothing then.
    struct Left {};
    const auto part = [] {
        World world(true);
        const OnDevice<float> buffer(world, 7, [](std::int64_t i) { return i; });
        world.comm->all_reduce(buffer.view(), Reduce::sum);
        world.comm->barrier();
        world.comm->all_reduce(buffer.view(), Reduce::sum);
        if (world.rank() != 0) throw Left{};
        CHECK_THROWS_WITH(buffer.values(), contains("NCCL reports"));
        CHECK_THROWS_WITH(world.comm->barrier(), contains("NCCL barrier") && contains("failed before"));
        CHECK_THROWS_WITH(world.comm->all_reduce(buffer.view(), Reduce::sum),
                          contains("NCCL all-reduce of 28 bytes among 2 ranks") && contains("failed before"));
    };
    try {
        part();
    } catch (const Left&) {
    }
}
