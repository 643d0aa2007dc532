#include "app/help.hpp"
#include "app/text.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {

std::vector<std::vector<std::string>> version_rows() {
    const BuildInfo build = build_info();
    std::string how(build.build_type);
    if (!build.arch.empty()) how += ", -march=" + std::string(build.arch);
    if (!build.sanitize.empty()) how += ", -fsanitize=" + std::string(build.sanitize);

    return {{"compiler", std::string(build.compiler)},
            {"build", how},
            {"MPI", mpi_version() + " (" + std::string(build.mpi) + ")"},
            {"HDF5", io::hdf5_version()},
            {"maths", math_library_version()},
            {"CUDA", build.cuda.empty() ? "not built" : std::string(build.cuda)},
            {"NCCL", build.nccl.empty() ? "not built" : std::string(build.nccl)}};
}

std::string version_text(const std::vector<std::vector<std::string>>& more) {
    Table table("<<");
    for (const std::vector<std::string>& row : version_rows()) table.add(row);
    for (const std::vector<std::string>& row : more) table.add(row);
    return "trireme " + std::string(build_info().version) + "\n" + table.text();
}

}  // namespace trireme::app
