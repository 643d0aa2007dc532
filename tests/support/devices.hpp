#pragma once
// The backends that this build and machine have: tests of operations generate over them.

#include <string>
#include <vector>

namespace trireme::testing {

inline std::vector<std::string> devices() {
    return {"cpu"};
}

}  // namespace trireme::testing
