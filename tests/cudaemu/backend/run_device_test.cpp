// What commands say to run.device=cuda where there is a GPU and a backend.
#include "app/run_device.hpp"
#include "support/catch.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("a GPU that is there computes no training, and nobody claims that it does", "[backend]") {
    REQUIRE(make_device("cuda")->name() == "cuda");
    CHECK(app::make_run_device("auto")->name() == "cpu");
    CHECK(app::make_run_device("cpu")->name() == "cpu");
    CHECK_THAT(app::gpu_absence(), contains("trains on CPUs only"));
    try {
        app::make_run_device("cuda");
        FAIL("run.device=cuda was taken");
    } catch (const Error& error) {
        CHECK_THAT(error.what(), contains("run.device=cuda") && contains("expected auto or cpu"));
        CHECK(error.status() == Status::bad_usage);
    }
}
