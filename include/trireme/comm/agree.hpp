// Small host-side agreements between the ranks of a group: values everybody must share and errors that
// everybody must raise alike, so that no rank waits for one that has given up.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.hpp"

namespace trireme {

/// Runs `action` on rank 0 only. What it throws, all ranks throw (Scope::all_ranks). Collective.
void agreed_by_one(Communicator& comm, const std::function<void()>& action);

/// Runs `action` on every rank. If any throws, all ranks throw the error of the lowest such rank, with its
/// number in the message where there is more than one rank and others succeeded. Collective; `action` itself
/// must not be.
void agreed_by_all(Communicator& comm, const std::function<void()>& action);

/// Rank 0's text on all ranks. Collective.
std::string broadcast_text(Communicator& comm, std::string text);
/// Each rank's text, in rank order, on all ranks. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

template <class T>
void all_reduce_values(Communicator& comm, std::span<T> values, Reduce op = Reduce::sum) {
    comm.all_reduce(view_of(values.data(), Shape{static_cast<std::int64_t>(values.size())}), op);
}
template <class T>
T all_reduce_value(Communicator& comm, T value, Reduce op = Reduce::sum) {
    all_reduce_values(comm, std::span<T>(&value, 1), op);
    return value;
}
template <class T>
T broadcast_value(Communicator& comm, T value, int root = 0) {
    comm.broadcast(view_of(&value, Shape{1}), root);
    return value;
}

}  // namespace trireme
