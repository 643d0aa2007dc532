// A build with MPICH under Slurm: started by the launcher that it understands, and by one that it does not.
// Needs build/mpich/trireme (or what TRIREME_MPICH_EXE names) beside Slurm and its laboratory.
#include <cstdlib>

#include "support/catch.hpp"
#include "support/slurm_lab.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

std::filesystem::path mpich_exe() {
    const char* named = std::getenv("TRIREME_MPICH_EXE");
    return named != nullptr ? named : source_dir() / "build" / "mpich" / "trireme";
}

}  // namespace

TEST_CASE("a build with MPICH trains under srun --mpi=pmi2, and says so where its ranks are alone",
          "[slurm-mpich]") {
    if (!std::filesystem::exists(mpich_exe())) {
        WARN("skipped: no build with MPICH at " << mpich_exe().string());
        return;
    }
    Lab lab;
    if (!lab.up()) {
        WARN("skipped: no Slurm, or no laboratory to start it");
        return;
    }
    const TempDir folder;
    const Run run = small_run(folder);
    const auto submit = [&](const std::string& mpi) {
        return lab.submit({"--export=ALL,MPI=" + mpi + ",TRIREME=" + mpich_exe().string(),
                           Lab::script("slurm_multi.sbatch")},
                          {file_of(run)});
    };
    // Under pmix each of its ranks would be a world of its own and train by itself.
    std::string text = submit("pmix");
    INFO(text);
    CHECK(lab.status != 0);
    CHECK_THAT(text, contains("--mpi=pmi2"));
    CHECK_FALSE(std::filesystem::exists(run.dir() / "metrics.jsonl"));

    text = submit("pmi2");
    INFO(text);
    REQUIRE(lab.status == 0);
    CHECK_THAT(text, contains("verdict: this launch works"));
    CHECK(run.events("start")[0]["ranks"] == 4);
    const Run alone = run.at(folder / "alone");
    alone.expect(0, 0);
    CHECK(same_bits(run.last().weights, alone.last().weights));
}
