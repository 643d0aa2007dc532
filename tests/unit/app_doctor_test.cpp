// What doctor reads of a machine and concludes of where ranks are, on machines made up here.
#include "support/catch.hpp"

#include <set>

#include "app/doctor.hpp"
#include "support/process.hpp"

using namespace trireme;
using namespace trireme::app::doctor;
using trireme::testing::contains;
using trireme::testing::TempDir;
using trireme::testing::write_file;

namespace {

Place place(int rank, std::vector<int> cores, int threads = 1, int node = 0) {
    Place made;
    made.rank = rank;
    made.node = node;
    made.cores = std::move(cores);
    made.threads = threads;
    return made;
}

Host host(const std::string& name, int cores, int node = 0, std::int64_t memory = 1000) {
    Host made;
    made.name = name;
    made.node = node;
    for (int core = 0; core < cores; ++core) made.cores.push_back(core);
    made.memory.total = memory;
    return made;
}

}  // namespace

TEST_CASE("lists of numbers are short, and read back", "[unit][app]") {
    CHECK(short_list({}).empty());
    CHECK(short_list({5}) == "5");
    CHECK(short_list({0, 1, 2, 3, 8}) == "0-3,8");
    CHECK(short_list({0, 2, 3}) == "0,2-3");
    for (const std::vector<int>& numbers : std::vector<std::vector<int>>{{}, {7}, {0, 1, 5, 6, 7, 9}})
        CHECK(numbers_of(short_list(numbers)) == numbers);
    CHECK(numbers_of("nonsense,3").size() == 1);
}

TEST_CASE("cores, NUMA nodes, memory and GPUs are the kernel's", "[unit][app]") {
    const TempDir root;
    const std::string at = root.path().string();
    CHECK(numa_nodes({0}, at) == "?");
    CHECK(machine_cores(at).empty());
    CHECK(machine_memory(at).usable() == 0);
    CHECK(gpu_files(at) == 0);

    write_file(root / "sys/devices/system/node/node0/cpulist", "0-3,8-11\n");
    write_file(root / "sys/devices/system/node/node1/cpulist", "4-7,12-15\n");
    write_file(root / "sys/devices/system/node/possible", "0-1\n");
    write_file(root / "sys/devices/system/cpu/online", "0-15\n");
    write_file(root / "proc/self/status", "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t2-5\n");
    write_file(root / "proc/meminfo", "MemTotal:       4000 kB\nMemFree: 1 kB\nMemAvailable:   3000 kB\n");
    for (const char* file : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"})
        write_file(root / "dev" / file, "");
    CHECK(allowed_cores(at) == std::vector<int>{2, 3, 4, 5});
    CHECK(numa_nodes({8, 9}, at) == "0");
    CHECK(numa_nodes({2, 3, 4, 5}, at) == "0-1");
    CHECK(numa_nodes({99}, at) == "?");
    CHECK(machine_cores(at).size() == 16);
    CHECK(gpu_files(at) == 2);
    CHECK(machine_memory(at).total == 4000 * 1024);
    CHECK(machine_memory(at).available == 3000 * 1024);
    CHECK(machine_memory(at).limit == 0);
}

TEST_CASE("the limits of a control group of either version count, also those of a group around it",
          "[unit][app]") {
    const TempDir root;
    const std::string at = root.path().string();
    write_file(root / "proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 3000 kB\n");
    write_file(root / "sys/devices/system/cpu/online", "0-15\n");
    SECTION("one hierarchy") {
        write_file(root / "proc/self/cgroup", "0::/slurm/job/step\n");
        write_file(root / "sys/fs/cgroup/slurm/job/memory.max", "2048000\n");
        write_file(root / "sys/fs/cgroup/slurm/memory.max", "3072000\n");
        write_file(root / "sys/fs/cgroup/slurm/job/step/memory.max", "max\n");
        write_file(root / "sys/fs/cgroup/slurm/job/step/cpuset.cpus.effective", "4-7\n");
    }
    SECTION("a hierarchy for each controller") {
        write_file(root / "proc/self/cgroup", "3:cpuset:/job\n2:memory,x:/job\n1:cpu:/other\n0::/\n");
        write_file(root / "sys/fs/cgroup/memory/job/memory.limit_in_bytes", "2048000\n");
        write_file(root / "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
        write_file(root / "sys/fs/cgroup/cpuset/job/cpuset.effective_cpus", "4-7\n");
    }
    CHECK(machine_memory(at).limit == 2048000);
    CHECK(machine_memory(at).usable() == 2048000);
    CHECK(machine_cores(at) == std::vector<int>{4, 5, 6, 7});
}

TEST_CASE("ranks that share cores while others are free are a problem", "[unit][app]") {
    const auto judge = [](int cores, std::vector<Place> ranks) {
        return judge_places({std::move(ranks), {host("node1", cores)}});
    };
    const Judgement same = judge(4, {place(0, {0}), place(1, {0})});
    CHECK_THAT(same.problem, contains("ranks 0-1 are bound to the same cores, 2 threads on core 0 of node1"));
    CHECK_THAT(same.problem, contains("no rank uses cores 1-3"));
    // Overlaps reach further than to the next.
    CHECK(!judge(8, {place(0, {0, 1}, 2), place(1, {1, 2}, 2), place(2, {2, 3}, 2)}).problem.empty());

    CHECK(judge(4, {place(0, {0}), place(1, {1})}).problem.empty());
    CHECK(judge(4, {place(0, {0, 1}), place(1, {0, 1})}).problem.empty());  // a core for each
    CHECK(judge(2, {place(0, {0, 1}), place(1, {0, 1})}).notes.empty());
    const Judgement crowded = judge(2, {place(0, {0, 1}, 2), place(1, {0, 1}, 2)});
    CHECK(crowded.problem.empty());  // nothing is free
    REQUIRE(crowded.notes.size() == 1);
    CHECK_THAT(crowded.notes[0], contains("more compute threads than cores: 4 threads on 2 cores of node1"));
    const Judgement idle = judge(64, {place(0, {0})});
    CHECK(idle.problem.empty());
    REQUIRE(idle.notes.size() == 1);
    CHECK_THAT(idle.notes[0], contains("may use 1 of its 64 cores"));
}

TEST_CASE("each host is judged by itself, and hosts are compared", "[unit][app]") {
    // Two hosts of one name, as containers may have.
    const Judgement apart = judge_places(
        {{place(0, {0, 1}, 2, 0), place(1, {0, 1}, 2, 1)}, {host("box", 2, 0), host("box", 2, 1)}});
    CHECK(apart.problem.empty());
    CHECK(apart.notes.empty());
    const Judgement both =
        judge_places({{place(0, {0}, 1, 0), place(1, {0}, 1, 0), place(2, {0}, 1, 2), place(3, {0}, 1, 2)},
                      {host("a", 4, 0), host("b", 4, 2)}});
    CHECK_THAT(both.problem, contains("1 times more"));
    const Judgement different =
        judge_places({{place(0, {0, 1}, 1, 0), place(1, {0, 1, 2, 3}, 1, 1)},
                      {host("small", 2, 0, 1'000'000'000), host("large", 4, 1, 2'000'000'000)}});
    REQUIRE(different.notes.size() == 2);
    CHECK_THAT(different.notes[0], contains("cores: 2 (small) to 4 (large)"));
    CHECK_THAT(different.notes[1], contains("memory: 1.0 GB (small) to 2.0 GB (large)"));
}

TEST_CASE("in the tournament everybody meets everybody once", "[unit][app]") {
    for (int size = 1; size <= 17; ++size) {
        const int rounds = size - 1 + size % 2;
        std::set<std::pair<int, int>> met;
        for (int round = 0; round < rounds; ++round)
            for (int rank = 0; rank < size; ++rank) {
                const int other = opponent(rank, size, round);
                INFO(size << " ranks, round " << round << ": " << rank << " meets " << other);
                if (other < 0) continue;
                REQUIRE(other < size);
                REQUIRE(other != rank);
                REQUIRE(opponent(other, size, round) == rank);
                REQUIRE(met.emplace(rank, other).second);
            }
        CHECK(met.size() == static_cast<std::size_t>(size * (size - 1)));
    }
}
