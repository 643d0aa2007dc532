#include "probe.hpp"

#include <cstdio>
#include <exception>
#include <map>
#include <string_view>

namespace trireme::sample {
namespace {

std::map<std::string_view, void (*)()>& probes() {
    static std::map<std::string_view, void (*)()> all;
    return all;
}

int failures = 0;

}  // namespace

Registration::Registration(const char* name, void (*run)()) {
    probes()[name] = run;
}

void expect(const char* what, double value, double wanted, double tolerance) {
    if (std::abs(value - wanted) <= tolerance) return;
    if (++failures < 5) std::fprintf(stderr, "wrong: %s is %g, not %g\n", what, value, wanted);
}

}  // namespace trireme::sample

using namespace trireme::sample;

int main(int argc, char** argv) {
    const auto found = argc > 1 ? probes().find(argv[1]) : probes().end();
    if (found == probes().end()) {
        std::fputs("usage: cudaemu_probe NAME\n", stderr);
        return 2;
    }
    try {
        found->second();
    } catch (const std::exception& e) {
        std::fprintf(stderr, "told: %s\n", e.what());
        return 3;
    }
    return failures != 0 ? 1 : 0;
}
