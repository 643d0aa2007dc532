#pragma once
// The backends that tests of operations generate over: the CPU, or the one that TRIREME_TEST_DEVICE names.

#include <cstdlib>
#include <string>
#include <vector>

namespace trireme::testing {

inline std::vector<std::string> devices() {
    const char* chosen = std::getenv("TRIREME_TEST_DEVICE");
    return {chosen != nullptr ? chosen : "cpu"};
}

}  // namespace trireme::testing
