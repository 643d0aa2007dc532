// Ranks that are threads of several processes: the same collectives, messages and splits as in one process.
#include <mpi.h>

#include <atomic>

#include "comm/processes.hpp"
#include "support/catch.hpp"
#include "support/teams.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/comm/session.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("collectives of threads of several processes are exact", "[mpi][devices]") {
    MpiCommunicator processes(MPI_COMM_WORLD, false);
    for (const int threads : {1, 2, 3}) {
        INFO(processes.size() << " processes x " << threads << " threads");
        CHECK(on_team(processes, threads, [&](Communicator& comm, Faults& faults) {
                  faults.expect(comm.size() == processes.size() * threads, "size");
                  faults.expect(comm.rank() / threads == processes.rank(), "rank");
                  check_collectives(comm, faults, {0, 1, 17});
                  if (threads == 2) check_collectives(comm, faults, {100003});
              }) == "");
    }
}

TEST_CASE("the same checks hold for plain ranks", "[mpi][devices]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    Faults faults;
    check_collectives(world, faults, {0, 1, 17, 100003});
    check_messages(world, faults);
    check_splits(world, faults);
    CHECK(faults.text() == "");
}

TEST_CASE("messages find the thread of the process that they are for", "[mpi][devices]") {
    MpiCommunicator processes(MPI_COMM_WORLD, false);
    for (const int threads : {2, 3}) CHECK(on_team(processes, threads, check_messages) == "");
}

TEST_CASE("teams of several processes are split into any groups", "[mpi][devices]") {
    MpiCommunicator processes(MPI_COMM_WORLD, false);
    for (const int threads : {1, 2, 3}) CHECK(on_team(processes, threads, check_splits) == "");
}

TEST_CASE("a mesh over threads of several processes", "[mpi][devices]") {
    MpiCommunicator processes(MPI_COMM_WORLD, false);
    CHECK(on_team(processes, 2, [&](Communicator& comm, Faults& faults) {
              Mesh mesh(comm, 2, 1);  // each tensor group one process
              faults.expect(mesh.tensor().backend() == "threads", "the tensor group is within the process");
              faults.expect(mesh.data().size() == processes.size(), "data ranks");
              // Groups of data ranks side by side, each over all processes, with a group of its own for a
              // second thread as the reducer has.
              const auto twin = mesh.data().duplicate();
              for (int i = 0; i < 30; ++i) {
                  check_collectives(mesh.data(), faults, {3});
                  check_collectives(*twin, faults, {2});
              }
          }) == "");
}

TEST_CASE("every process does once what is done once", "[mpi][devices]") {
    MpiCommunicator processes(MPI_COMM_WORLD, false);
    std::atomic<int> calls = 0;
    CHECK(on_team(processes, 3, [&](Communicator& comm, Faults& faults) {
              once_per_process(comm, [&] {
                  ++calls;
                  MPI_Barrier(processes_of(comm));
                  return nullptr;
              });
              faults.expect(calls == 1, "how often");
          }) == "");
}

TEST_CASE("each thread of each process has its seat", "[mpi][devices]") {
    int argc = 0;
    char** argv = nullptr;
    Session process(argc, argv);
    const auto sessions = process.per_device(2);
    for (int d = 0; d < 2; ++d) {
        const Session& session = *sessions[static_cast<std::size_t>(d)];
        CHECK(session.rank() == 2 * process.rank() + d);
        CHECK(session.size() == 2 * process.size());
        CHECK(session.local_rank() == session.rank());  // tests run on one machine
        CHECK(session.local_size() == session.size());
        CHECK(session.process() == process.rank());
        CHECK(session.processes() == process.size());
        CHECK(session.core_share() == std::max(1, process.core_share() / 2));
    }
    if (process.size() > 1) CHECK_THROWS(process.per_device(1 + process.rank()));
}
