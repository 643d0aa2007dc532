#include "app/help.hpp"
#include "app/text.hpp"
#include "trireme/base/build_info.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme::app {

std::string version_text(const std::vector<std::vector<std::string>>& more) {
    const BuildInfo build = build_info();
    std::string how(build.build_type);
    if (!build.arch.empty()) how += ", -march=" + std::string(build.arch);
    if (!build.sanitize.empty()) how += ", -fsanitize=" + std::string(build.sanitize);

    Table table("<<");
    table.add({"compiler", std::string(build.compiler)});
    table.add({"build", how});
    table.add({"MPI", mpi_version() + " (" + std::string(build.mpi) + ")"});
    table.add({"HDF5", io::hdf5_version()});
    table.add({"maths", math_library_version()});
    table.add({"CUDA", "not built"});
    table.add({"NCCL", "not built"});
    for (const std::vector<std::string>& row : more) table.add(row);
    return "trireme " + std::string(build.version) + "\n" + table.text();
}

}  // namespace trireme::app
