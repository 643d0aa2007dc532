#include <cmath>
#include <cstdlib>
#include <ctime>

#include "support/catch.hpp"
#include "train/deadline.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;

TEST_CASE("times as people and as Slurm write them", "[unit][deadline]") {
    CHECK(time_limit_from("90 minutes") == 5400);
    CHECK(time_limit_from("1 hour") == 3600);
    CHECK(time_limit_from("0.5 seconds") == 0.5);
    CHECK(time_limit_from("2 days") == 172800);
    CHECK(time_limit_from("1:30:00") == 5400);
    CHECK(time_limit_from("90:00") == 5400);
    CHECK(time_limit_from("1-12:00:00") == 129600);
    CHECK(std::isinf(time_limit_from("none")));
    CHECK(std::isinf(time_limit_from("auto")));
    for (const char* wrong :
         {"", "90", "soon", "-1 hours", "1:xx", "1:2:3:4", "x-1:00", "5 weeks", "0 minutes"})
        CHECK_THROWS_AS(time_limit_from(wrong), Error);
}

TEST_CASE("a run stops when a step and a save would not fit any more", "[unit][deadline]") {
    Deadline none("none");
    none.took_step(1e9);
    CHECK_FALSE(none.near());
    Deadline later("1000 hours");
    CHECK_FALSE(later.near());
    later.took_save(400 * 3600.0);
    CHECK_FALSE(later.near());
    later.took_step(150 * 3600.0);  // twice each is more than what is left
    CHECK(later.near());
    CHECK(Deadline("0.001 seconds").near());

    setenv("SLURM_JOB_END_TIME", std::to_string(std::time(nullptr) + 3600).c_str(), 1);
    CHECK(Deadline("auto").left() == Approx(3600).margin(2));
    CHECK(std::isinf(Deadline("none").left()));
    CHECK(Deadline("2 hours").left() > 3700);  // what is given goes first
    setenv("SLURM_JOB_END_TIME", "tomorrow", 1);
    CHECK(std::isinf(Deadline("auto").left()));
    unsetenv("SLURM_JOB_END_TIME");
    CHECK(std::isinf(Deadline("auto").left()));
}
