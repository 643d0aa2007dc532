// One call of a communicator: recorded as long as it lasts.
#pragma once

#include "trireme/base/recorder.hpp"
#include "trireme/comm/communicator.hpp"

namespace trireme {

/// The sequence of a group's collectives after one more. Not for messages: they differ from rank to rank.
inline std::uint64_t one_more(std::uint64_t sequence, const char* verb, View buffer) {
    for (; *verb != '\0'; ++verb) sequence = (sequence ^ static_cast<unsigned char>(*verb)) * 0x100000001b3;
    return (sequence ^ static_cast<std::uint64_t>(buffer.bytes())) * 0x100000001b3;
}

/// A group of one does not communicate.
inline Span operation(const Communicator& comm, const char* verb, std::size_t bytes) {
    return comm.size() > 1
               ? Span(Activity::communication, verb, static_cast<std::int64_t>(bytes), comm.size())
               : Span();
}

}  // namespace trireme
