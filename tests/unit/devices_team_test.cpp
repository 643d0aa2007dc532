// Ranks that are threads of one process: every collective, messages and splits against exact values, and in a
// steady state without an allocation.
#include <mpi.h>

#include <atomic>
#include <cmath>
#include <vector>

#include "comm/processes.hpp"
#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/teams.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/comm/session.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("collectives of threads are exact at awkward sizes", "[unit][devices]") {
    const int threads = GENERATE(1, 2, 3, 4);
    INFO(threads << " threads");
    CHECK(on_team(threads, [&](Communicator& comm, Faults& faults) {
              faults.expect(comm.size() == threads, "size");
              check_collectives(comm, faults, {0, 1, 17, 100003});
          }) == "");
}

TEST_CASE("messages of threads arrive whole and in order", "[unit][devices]") {
    const int threads = GENERATE(1, 2, 3, 4);
    CHECK(on_team(threads, check_messages) == "");
}

TEST_CASE("teams are split into any groups", "[unit][devices]") {
    const int threads = GENERATE(1, 2, 3, 4, 7);
    CHECK(on_team(threads, check_splits) == "");
}

TEST_CASE("threads add in the order of the ranks", "[unit][devices]") {
    // Values whose sum depends on the order of adding.
    const auto contribution = [](int rank, std::int64_t i) {
        const float magnitude[] = {1.0F, 1e-4F, 3e3F, -3e3F};
        return magnitude[(rank + i) % 4] * (1.0F + static_cast<float>(i % 101) / 97.0F);
    };
    constexpr std::int64_t n = 20011;
    const int threads = GENERATE(3, 4);
    CHECK(on_team(threads, [&](Communicator& comm, Faults& faults) {
              std::vector<float> mine, expected;
              for (std::int64_t i = 0; i < n; ++i) {
                  mine.push_back(contribution(comm.rank(), i));
                  float sum = contribution(0, i);
                  for (int r = 1; r < threads; ++r) sum += contribution(r, i);
                  expected.push_back(sum);
              }
              std::vector<float> all = mine;
              comm.all_reduce(view_of(mine.data(), Shape{n}), Reduce::sum);
              faults.expect(mine == expected, "all-reduce");

              std::vector<Range> parts;
              for (int r = 0; r < threads; ++r) parts.push_back(part_of({0, n}, threads, r));
              const Range part = parts[static_cast<std::size_t>(comm.rank())];
              std::vector<float> sums(static_cast<std::size_t>(part.size()));
              comm.reduce_scatter(view_of(all.data(), Shape{n}), parts,
                                  view_of(sums.data(), Shape{part.size()}), Reduce::sum);
              faults.expect(std::equal(sums.begin(), sums.end(), expected.begin() + part.begin),
                            "reduce-scatter");
          }) == "");
}

TEST_CASE("nobody passes a barrier before everybody has come", "[unit][devices]") {
    std::atomic<int> came = 0;
    CHECK(on_team(3, [&](Communicator& comm, Faults& faults) {
              for (int round = 1; round <= 500; ++round) {
                  ++came;
                  comm.barrier();
                  faults.expect(came >= 3 * round, "passed too early");
                  comm.barrier();
              }
          }) == "");
}

TEST_CASE("threads refuse what cannot be: 16-bit sums, messages that are too long", "[unit][devices]") {
    const auto message_of = [](const std::function<void()>& action) -> std::string {
        try {
            action();
        } catch (const Error& error) {
            return error.what();
        }
        return "nothing was thrown";
    };
    CHECK(on_team(2, [&](Communicator& comm, Faults& faults) {
              std::uint16_t bits = 0x3F80;
              const View half = {&bits, DType::bf16, {1}};
              faults.expect(message_of([&] { comm.all_reduce(half, Reduce::sum); }).find("bfloat16") !=
                                std::string::npos,
                            "a sum of bfloat16");
              comm.broadcast(half, 1);  // which may be moved

              std::vector<std::int32_t> list(comm.rank() == 0 ? 3 : 2);
              const View view = view_of(list.data(), Shape{static_cast<std::int64_t>(list.size())});
              faults.expect(message_of([&] {
                                comm.all_reduce(view, Reduce::sum);
                            }).find("3 elements against 2") != std::string::npos,
                            "different counts");
          }) == "");
    CHECK(on_team(1, [&](Communicator& comm, Faults& faults) {
              std::int64_t two[2] = {}, one = 0;
              comm.post(view_of(two, Shape{2}), 0, 1);
              const std::string said = message_of([&] { comm.receive(view_of(&one, Shape{1}), 0, 1); });
              faults.expect(said.find("16 bytes was sent where 8") != std::string::npos, said);
          }) == "");
}

TEST_CASE("values, texts and errors are agreed on by threads", "[unit][devices]") {
    CHECK(on_team(3, [](Communicator& comm, Faults& faults) {
              const auto texts = gather_texts(comm, std::string(static_cast<std::size_t>(comm.rank()), 'x'));
              faults.expect(texts == std::vector<std::string>{"", "x", "xx"}, "texts");
              faults.expect(broadcast_text(comm, comm.rank() == 0 ? "from the root" : "") == "from the root",
                            "a text");
              try {
                  agreed_by_all(comm, [&] {
                      if (comm.rank() == 2) throw data_error("row 7");
                  });
                  faults.expect(false, "nothing was thrown");
              } catch (const Error& error) {
                  faults.expect(
                      error.scope() == Scope::all_ranks && std::string(error.what()) == "rank 2: row 7",
                      error.what());
              }
          }) == "");
}

TEST_CASE("what a process does once is done by one thread, for all", "[unit][devices]") {
    std::atomic<int> calls = 0;
    CHECK(on_team(3, [&](Communicator& comm, Faults& faults) {
              const auto make = [&] {
                  ++calls;
                  return std::make_shared<int>(42);
              };
              const auto made = std::static_pointer_cast<int>(once_per_process(comm, make));
              faults.expect(*made == 42, "what was made");
              comm.barrier();
              faults.expect(calls == 1, "how often");
              faults.expect(made.use_count() == 3, "nobody else keeps it");
              comm.barrier();
              for (int i = 0; i < 2; ++i) try {  // an error too is everybody's, and is gone afterwards
                      once_per_process(comm, []() -> std::shared_ptr<void> { throw data_error("no file"); });
                      faults.expect(false, "nothing was thrown");
                  } catch (const Error& error) {
                      faults.expect(std::string(error.what()) == "no file", error.what());
                  }
              once_per_process(comm, make);
              comm.barrier();
              faults.expect(calls == 2, "how often after an error");
          }) == "");
}

TEST_CASE("steady collectives of threads allocate nothing", "[unit][devices]") {
    if (!can_count_allocations()) {
        WARN("skipped: allocations are not counted under a sanitizer");
        return;
    }
    Allocations found;
    CHECK(on_team(3, [&](Communicator& comm, Faults&) {
              const int ranks = comm.size();
              std::vector<float> all(3000), mine(1000), sums(1000);
              std::vector<Range> parts;
              for (int r = 0; r < ranks; ++r) parts.push_back({1000 * r, 1000 * r + 1000});
              const View whole = view_of(all.data(), Shape{3000}), part = view_of(mine.data(), Shape{1000});
              const auto round = [&] {
                  comm.all_reduce(whole, Reduce::sum);
                  comm.broadcast(whole, 1);
                  comm.all_gather(part, whole);
                  comm.all_gather(whole, parts);
                  comm.all_to_all(whole, parts, whole, parts);
                  comm.reduce_scatter(whole, parts, view_of(sums.data(), Shape{1000}), Reduce::sum);
                  const auto ticket = comm.post(part, (comm.rank() + 1) % ranks, 3);
                  comm.receive(view_of(sums.data(), Shape{1000}), (comm.rank() + ranks - 1) % ranks, 3);
                  comm.wait(ticket);
                  comm.barrier();
              };
              for (int warm = 0; warm < 2; ++warm) round();
              if (comm.rank() == 0) count_allocations();
              for (int steady = 0; steady < 5; ++steady) round();
              if (comm.rank() == 0) found = allocations();
          }) == "");
    CHECK(found.ours == 0);
}

TEST_CASE("a process is as many ranks as it drives devices", "[unit][devices]") {
    int argc = 0;
    char** argv = nullptr;
    Session process(argc, argv);
    if (process.size() > 1) return;  // tests/mpi has that
    const int devices = GENERATE(1, 2, 5);
    const auto sessions = process.per_device(devices);
    REQUIRE(static_cast<int>(sessions.size()) == devices);
    for (int d = 0; d < devices; ++d) {
        const Session& session = *sessions[static_cast<std::size_t>(d)];
        CHECK(session.rank() == d);
        CHECK(session.size() == devices);
        CHECK(session.local_rank() == d);
        CHECK(session.local_size() == devices);
        CHECK(session.device() == d);
        CHECK(session.devices() == devices);
        CHECK(session.process() == 0);
        CHECK(session.processes() == 1);
        CHECK(session.host() == process.host());
        CHECK(session.core_share() == std::max(1, process.core_share() / devices));
    }
    CHECK(on_team(4, [](Communicator& comm, Faults& faults) {
              Mesh mesh(comm, 2, 1);
              faults.expect(mesh.tensor().size() == 2 && mesh.tensor().rank() == comm.rank() % 2, "tensor");
              faults.expect(mesh.data().size() == 2 && mesh.data().rank() == comm.rank() / 2, "data");
              mesh.require_tensor_on_one_node(comm);
          }) == "");
}
