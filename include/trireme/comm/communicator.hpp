// A group of ranks that act together. Verbs are the field's collectives over typed views; what they are used
// for is decided above. A group of one is an ordinary communicator.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/base/range.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

enum class Reduce { sum, max, min };

/// Messages from one rank to another with a tag of their own.
struct Route {
    int from = 0, to = 0, tag = 0;
    friend bool operator==(const Route&, const Route&) = default;
};

class Communicator {
public:
    virtual ~Communicator() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual std::string backend() const = 0;  ///< "mpi", "threads", "nccl and mpi"

    // Collectives: every rank of the group calls them in the same order, with the same counts and types.
    // A failed call raises an Error that names the operation, the bytes and the group.

    /// In place. Any number of elements; more than 2^31 are sent in pieces.
    virtual void all_reduce(View buffer, Reduce op) = 0;
    virtual void broadcast(View buffer, int root) = 0;
    /// `all` holds size() parts of mine.count() elements, in rank order.
    virtual void all_gather(View mine, View all) = 0;
    /// Parts of different sizes: rank r contributes the elements `parts[r]` of `buffer` and receives all
    /// others.
    virtual void all_gather(View buffer, std::span<const Range> parts) = 0;
    /// Elements send_parts[q] of `send` go to rank q; what rank q sends here goes to elements recv_parts[q]
    /// of `recv`.
    virtual void all_to_all(View send, std::span<const Range> send_parts, View recv,
                            std::span<const Range> recv_parts) = 0;
    /// Sums over the ranks, each rank one part: `parts` follow each other from element 0 of `all` on; rank r
    /// gets the sums of parts[r] in `mine`, which lies outside of `all`. `all` is left undefined.
    virtual void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) = 0;
    virtual void barrier() = 0;

    // Between two ranks. Messages of one pair and tag arrive in the order in which they were sent.
    virtual void send(View buffer, int to, int tag) = 0;
    virtual void receive(View buffer, int from, int tag) = 0;
    /// Sends without waiting: the buffer must stay as it is until wait() has returned for the ticket.
    using Ticket = int;
    virtual Ticket post(View buffer, int to, int tag) = 0;
    virtual void wait(Ticket ticket) = 0;
    /// Announces routes on which messages from memory of a device to memory of a device will come again and
    /// again, each received in the order in which it was posted; in place of those announced before.
    /// Collective: all ranks name all routes, in the same order. Where on_streams() is true, and no rank is
    /// an end of more than message_streams of them, such messages are ordered with the streams from then on:
    /// post() and receive() return at once, and what the stream is given after wait(), or receive(), comes
    /// after the message.
    virtual void connect(std::span<const Route>) {}

    /// True where collectives on memory of a device are ordered with its streams and return before they are
    /// done.
    virtual bool on_streams() const { return false; }

    /// Ranks with the same colour form a group, ordered by key, then by rank. Collective.
    virtual std::unique_ptr<Communicator> split(int colour, int key) = 0;
    /// The same group with a message space of its own (for a communication thread). Collective.
    std::unique_ptr<Communicator> duplicate() { return split(0, rank()); }

    /// From now on calls here, and in groups that are split off from now on, leave the processor to others
    /// while they wait, and may end somewhat later: for ranks that share cores, and threads that work behind
    /// others' backs. All ranks of the group do it, at the same point between two calls.
    virtual void rest_while_waiting() {}

    /// Of the collectives that this rank has called here, in their order, with their sizes: the same on all
    /// ranks as long as they do the same.
    std::uint64_t sequence() const { return sequence_; }

protected:
    std::uint64_t sequence_ = 0;
};

}  // namespace trireme
