// Ops that watch the clock: forwards every verb and adds up the time by what it is for. For benchmarks.
#pragma once

#include <memory>

#include "trireme/ops/ops.hpp"

namespace trireme {

/// Seconds spent in verbs, by kind.
struct OpTimes {
    double products = 0;  ///< matmul and convolutions
    double updates = 0;   ///< optimizer passes and running averages
    double others = 0;    ///< everything else
};

/// `times` is added to and must outlive the result. A verb must be done when it returns: for devices of host
/// memory.
std::unique_ptr<Ops> make_timed_ops(std::unique_ptr<Ops> ops, OpTimes& times);

}  // namespace trireme
