// Looking for the CUDA backend, and refusing what is none.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/tensor/device.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

/// The plugin is this file, for the length of a test.
class Plugin {
public:
    explicit Plugin(const std::string& path) { setenv(name, path.c_str(), 1); }
    ~Plugin() { unsetenv(name); }
    Plugin(const Plugin&) = delete;
    Plugin& operator=(const Plugin&) = delete;

private:
    static constexpr const char* name = "TRIREME_CUDA_PLUGIN";
};

/// A library that is on every machine.
std::string some_library() {
    Dl_info found{};
    REQUIRE(dladdr(reinterpret_cast<const void*>(&std::fputs), &found) != 0);
    return found.dli_fname;
}

void check_refused(const std::string& reason) {
    REQUIRE_THROWS_WITH(make_device("cuda"), contains("run.device=cuda") && contains(reason));
    CHECK_THAT(cuda_absence(), contains(reason));
}

}  // namespace

TEST_CASE("a CUDA backend that is not there is named with where it was looked for", "[unit][tensor]") {
    const Plugin plugin("/nowhere/libtrireme_cuda.so");
    check_refused("looked for /nowhere/libtrireme_cuda.so");
}

TEST_CASE("a file that is no library is no CUDA backend", "[unit][tensor]") {
    const Plugin plugin("/proc/self/cmdline");
    check_refused("does not load");
}

TEST_CASE("a library of another build is refused as a CUDA backend", "[unit][tensor]") {
    const Plugin plugin(some_library());
    check_refused("belongs to another build");
}

TEST_CASE("asking for the CPU opens no plugin", "[unit][tensor]") {
    const Plugin plugin(some_library());
    CHECK(make_device("cpu")->name() == "cpu");
    REQUIRE_THROWS_WITH(make_device("gpu"), contains("expected auto, cpu or cuda"));
}

TEST_CASE("the CUDA backend of this build is taken, as far as the machine allows", "[unit][tensor]") {
    const char* built = std::getenv("TRIREME_BUILT_PLUGIN");
    if (built == nullptr) {
        WARN("skipped: this build has no CUDA backend");
        return;
    }
    const Plugin plugin(built);
    const std::string reason = cuda_absence();
    const bool taken = reason.empty() || reason.find("driver") != std::string::npos ||
                       reason.find("no GPU") != std::string::npos;
    INFO(reason);
    CHECK(taken);
}
