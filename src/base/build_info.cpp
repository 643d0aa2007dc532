#include "trireme/base/build_info.hpp"

namespace trireme {

BuildInfo build_info() {
    constexpr std::string_view sanitize = TRIREME_SANITIZE;
    return {
        .version = TRIREME_VERSION,
        .compiler = TRIREME_COMPILER,
        .build_type = TRIREME_BUILD_TYPE,
        .arch = TRIREME_ARCH,
        .mpi = TRIREME_MPI,
        .sanitize = sanitize == "OFF" ? std::string_view() : sanitize,
        .cuda = TRIREME_CUDA,
        .nccl = TRIREME_NCCL,
    };
}

}  // namespace trireme
