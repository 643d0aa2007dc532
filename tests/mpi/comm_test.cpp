// Collectives against exact values: integers whose sums are exact in the type, at awkward counts.
#include <mpi.h>

#include <cstdlib>
#include <numeric>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/comm/session.hpp"

using namespace trireme;
using trireme::testing::contains;

namespace {

template <class T>
void check_all_reduce(Communicator& comm, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<T>(static_cast<std::int64_t>(i % 13) + comm.rank());
    all_reduce_values(comm, std::span<T>(values));
    const int ranks = comm.size();
    bool exact = true;
    for (std::size_t i = 0; i < values.size(); ++i) {
        const std::int64_t expected = static_cast<std::int64_t>(i % 13) * ranks + ranks * (ranks - 1) / 2;
        exact = exact && values[i] == static_cast<T>(expected);
    }
    CHECK(exact);
}

// All ranks, as they block within MPI, and as they rest between looks.
std::vector<std::unique_ptr<Communicator>> both_ways() {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    std::vector<std::unique_ptr<Communicator>> comms;
    comms.push_back(world.duplicate());
    comms.push_back(world.duplicate());
    comms.back()->rest_while_waiting();
    return comms;
}

}  // namespace

TEST_CASE("all-reduce is exact at awkward counts", "[mpi][comm]") {
    for (const auto& comm : both_ways()) {
        Communicator& world = *comm;
        for (const std::int64_t count : {0, 1, 2, 7, 1009, 65536, 1000003}) {
            check_all_reduce<float>(world, count);
            check_all_reduce<double>(world, count);
            check_all_reduce<std::int32_t>(world, count);
        }
        std::int64_t value = 100 + world.rank();
        CHECK(all_reduce_value(world, value, Reduce::max) == 99 + world.size());
        CHECK(all_reduce_value(world, value, Reduce::min) == 100);
    }
}

TEST_CASE("16-bit reals are never summed as integers", "[mpi][comm]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    if (world.size() == 1) return;
    std::uint16_t bits = 0x3F80;
    CHECK_THROWS_AS(world.all_reduce({&bits, DType::bf16, {1}}, Reduce::sum), Error);
}

TEST_CASE("gathers and exchanges of uneven parts", "[mpi][comm]") {
    for (const auto& comm : both_ways()) {
        Communicator& world = *comm;
        const int ranks = world.size();
        std::vector<Range> parts;
        std::int64_t total = 0;
        for (int q = 0; q < ranks; ++q) {
            parts.push_back({total, total + q});  // rank 0 has nothing
            total += q;
        }
        std::vector<std::int32_t> all(static_cast<std::size_t>(total), -1);
        const Range mine = parts[static_cast<std::size_t>(world.rank())];
        for (std::int64_t i = mine.begin; i < mine.end; ++i)
            all[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * i);
        world.all_gather(view_of(all.data(), Shape{total}), parts);
        for (std::int64_t i = 0; i < total; ++i) CHECK(all[static_cast<std::size_t>(i)] == i * i);

        // Rank r sends (r+1) copies of 10 r + q to rank q.
        std::vector<std::int32_t> send, recv;
        std::vector<Range> send_parts, recv_parts;
        for (int q = 0; q < ranks; ++q) {
            const auto begin = static_cast<std::int64_t>(send.size());
            send.insert(send.end(), static_cast<std::size_t>(world.rank() + 1), 10 * world.rank() + q);
            send_parts.push_back({begin, static_cast<std::int64_t>(send.size())});
            const auto at = static_cast<std::int64_t>(recv.size());
            recv.resize(recv.size() + static_cast<std::size_t>(q) + 1, -1);
            recv_parts.push_back({at, static_cast<std::int64_t>(recv.size())});
        }
        world.all_to_all(view_of(send.data(), Shape{static_cast<std::int64_t>(send.size())}), send_parts,
                         view_of(recv.data(), Shape{static_cast<std::int64_t>(recv.size())}), recv_parts);
        for (int q = 0; q < ranks; ++q)
            for (std::int64_t i = recv_parts[static_cast<std::size_t>(q)].begin;
                 i < recv_parts[static_cast<std::size_t>(q)].end; ++i)
                CHECK(recv[static_cast<std::size_t>(i)] == 10 * q + world.rank());
    }
}

TEST_CASE("sums are dealt out to the ranks in parts", "[mpi][comm]") {
    for (const auto& comm : both_ways()) {
        Communicator& world = *comm;
        std::vector<Range> parts;
        for (int q = 0; q < world.size(); ++q) {
            const std::int64_t begin = q == 0 ? 0 : parts.back().end;
            parts.push_back({begin, begin + 3 * q});  // rank 0 has nothing
        }
        const std::int64_t total = parts.back().end;
        std::vector<float> all;
        for (std::int64_t i = 0; i < total; ++i) all.push_back(static_cast<float>(i * (world.rank() + 1)));
        const Range mine = parts[static_cast<std::size_t>(world.rank())];
        std::vector<float> sums(static_cast<std::size_t>(mine.size()), -1);
        world.reduce_scatter(view_of(all.data(), Shape{total}), parts,
                             view_of(sums.data(), Shape{mine.size()}), Reduce::sum);
        const std::int64_t factor = world.size() * (world.size() + 1) / 2;
        for (std::int64_t i = 0; i < mine.size(); ++i)
            CHECK(sums[static_cast<std::size_t>(i)] == static_cast<float>((mine.begin + i) * factor));
    }
}

TEST_CASE("posted messages arrive in order, in a ring", "[mpi][comm]") {
    for (const auto& comm : both_ways()) {
        Communicator& world = *comm;
        const int next = (world.rank() + 1) % world.size(),
                  before = (world.rank() + world.size() - 1) % world.size();
        std::vector<std::vector<float>> sent;
        std::vector<Communicator::Ticket> tickets;
        for (int k = 0; k < 5; ++k) {
            sent.emplace_back(1000, static_cast<float>(100 * k + world.rank()));
            tickets.push_back(world.post(view_of(sent.back().data(), Shape{1000}), next, 7));
        }
        for (int k = 0; k < 5; ++k) {
            std::vector<float> got(1000);
            world.receive(view_of(got.data(), Shape{1000}), before, 7);
            CHECK(got.front() == static_cast<float>(100 * k + before));
            CHECK(got.back() == got.front());
        }
        for (const auto ticket : tickets) world.wait(ticket);
        const Communicator::Ticket again = world.post(view_of(sent[0].data(), Shape{1}), next, 8);
        CHECK(again < 5);  // tickets are used again
        float got = -1;
        world.receive(view_of(&got, Shape{1}), before, 8);
        CHECK(got == static_cast<float>(before));
        world.wait(again);
    }
}

TEST_CASE("texts and values reach everybody", "[mpi][comm]") {
    for (const auto& comm : both_ways()) {
        Communicator& world = *comm;
        CHECK(broadcast_text(world, world.rank() == 0 ? "from the root" : "something else") ==
              "from the root");
        CHECK(broadcast_text(world, "") == "");
        CHECK(broadcast_value(world, world.rank() + 5, world.size() - 1) == world.size() + 4);
        const auto texts = gather_texts(world, std::string(static_cast<std::size_t>(world.rank()), 'x'));
        REQUIRE(static_cast<int>(texts.size()) == world.size());
        for (int q = 0; q < world.size(); ++q)
            CHECK(texts[static_cast<std::size_t>(q)] == std::string(static_cast<std::size_t>(q), 'x'));
    }
}

TEST_CASE("an error of one rank becomes everybody's", "[mpi][comm]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const int last = world.size() - 1;
    const auto message_of = [&](const std::function<void()>& action) {
        try {
            action();
        } catch (const Error& error) {
            CHECK(error.scope() == Scope::all_ranks);
            CHECK(error.status() == Status::bad_data);
            return std::string(error.what());
        }
        return std::string("nothing was thrown");
    };
    CHECK_THAT(message_of([&] { agreed_by_one(world, [] { throw data_error("shard 3"); }); }),
               contains("shard 3"));
    CHECK_THAT(message_of([&] {
                   agreed_by_all(world, [&] {
                       if (world.rank() == last) throw data_error("row 7");
                   });
               }),
               contains("row 7") && contains(world.size() > 1 ? "rank " + std::to_string(last) : "row"));
    agreed_by_one(world, [] {});
    agreed_by_all(world, [] {});
}

TEST_CASE("the mesh puts tensor ranks next to each other", "[mpi][comm]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    Mesh plain(world, 1, 1);
    CHECK(plain.data().size() == world.size());
    CHECK(plain.data().rank() == world.rank());
    CHECK(plain.tensor().size() == 1);
    if (world.size() == 4) {
        Mesh mesh(world, 2, 2);
        CHECK(mesh.data().size() == 1);
        CHECK(mesh.tensor().rank() == world.rank() % 2);
        CHECK(mesh.pipeline().rank() == world.rank() / 2);
    }
    if (world.size() == 3) CHECK_THROWS_AS(Mesh(world, 2, 1), Error);
}

TEST_CASE("the session knows the node", "[mpi][comm]") {
    int argc = 0;
    char** argv = nullptr;
    Session session(argc, argv);
    CHECK(session.local_size() == session.size());  // tests run on one machine
    CHECK(session.local_rank() == session.rank());
    CHECK(session.core_share() >= 1);
    CHECK(session.core_share() <= session.allowed_cores());
}

TEST_CASE("ranks rest where they share cores, or as TRIREME_WAIT says", "[mpi][comm]") {
    const auto rests = [] {
        int argc = 0;
        char** argv = nullptr;
        Session session(argc, argv);
        const auto part = session.world().split(0, session.rank());
        const bool resting = dynamic_cast<MpiCommunicator&>(session.world()).rests();
        CHECK(dynamic_cast<MpiCommunicator&>(*part).rests() == resting);
        CHECK(dynamic_cast<MpiCommunicator&>(session.local()).rests() == resting);
        return std::pair(resting, session.local_size() > session.allowed_cores());
    };
    const char* before = std::getenv("TRIREME_WAIT");
    const std::string kept = before != nullptr ? before : "auto";
    MpiCommunicator world(MPI_COMM_WORLD, false);
    setenv("TRIREME_WAIT", "block", 1);
    CHECK_FALSE(rests().first);
    setenv("TRIREME_WAIT", world.rank() == world.size() - 1 ? "rest" : "block", 1);
    CHECK(rests().first);  // one rank's wish is everybody's
    setenv("TRIREME_WAIT", "auto", 1);
    const auto [resting, crowded] = rests();  // the tests' ranks are not bound to cores
    CHECK(resting == crowded);
    setenv("TRIREME_WAIT", "sleep", 1);
    int argc = 0;
    char** argv = nullptr;
    Session session(argc, argv);
    CHECK_THROWS_WITH(check_launch(session), contains("TRIREME_WAIT=sleep: expected auto, rest or block"));
    setenv("TRIREME_WAIT", kept.c_str(), 1);
}
