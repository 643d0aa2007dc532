// What a command runs on; built once by main and handed down by reference.
#pragma once

#include <functional>

#include "trireme/base/log.hpp"
#include "trireme/comm/mesh.hpp"
#include "trireme/comm/session.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

struct Runtime {
    Session& session;
    Mesh& mesh;
    Device& device;
    const Log& log;
    int threads = 1;                       ///< compute threads of this rank
    std::function<bool()> stop_requested;  ///< SIGTERM or SIGUSR1 has reached this process
};

}  // namespace trireme
