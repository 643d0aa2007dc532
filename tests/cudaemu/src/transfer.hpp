// NCCL operations as streams run them: what is sent to whom, and what becomes of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "communicator.hpp"
#include "mail.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {

enum class Collective : std::int32_t {
    all_reduce = 1,
    reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    send,
    receive
};

// One call, as the program made it.
struct NcclCall {
    std::shared_ptr<Communicator> comm;
    cudaStream_t stream;
    mail::Signature said;
    const void* in;
    std::size_t in_bytes;
    void* out;
    std::size_t out_bytes;
    int peer = -1;  // of a send or receive

    Collective kind() const { return static_cast<Collective>(said.call); }
    std::string describe() const;
};

// Calls of one group on one stream, which proceed together.
Work work(std::vector<NcclCall>);

}  // namespace trireme::cudaemu
