#pragma once
// What this binary was built as. The versions of libraries are asked of the libraries, at run time.

#include <string_view>

namespace trireme {

struct BuildInfo {
    std::string_view version;     // "0.1.0"
    std::string_view compiler;    // "GNU 12.2.0"
    std::string_view build_type;  // "Release"
    std::string_view arch;        // value of -march; empty: the compiler's default
    std::string_view mpi;         // "openmpi" or "mpich"
    std::string_view sanitize;    // "address,undefined"; empty: none
    std::string_view cuda;        // "13.0.88 for sm_80, sm_90": the backend beside it; empty: not built
    std::string_view nccl;        // "2.27.3", in the same backend; empty: not built
};

BuildInfo build_info();

}  // namespace trireme
