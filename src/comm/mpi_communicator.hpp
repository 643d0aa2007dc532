// Communicator over MPI.
#pragma once

#include <mpi.h>

#include <memory>
#include <vector>

#include "trireme/comm/communicator.hpp"

namespace trireme {

class MpiCommunicator final : public Communicator {
public:
    /// `owned`: free the handle at the end (a split); not for MPI_COMM_WORLD.
    MpiCommunicator(MPI_Comm comm, bool owned);
    ~MpiCommunicator() override;
    MpiCommunicator(const MpiCommunicator&) = delete;
    MpiCommunicator& operator=(const MpiCommunicator&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string backend() const override { return "mpi"; }
    MPI_Comm handle() const { return comm_; }

    void all_reduce(View buffer, Reduce op) override;
    void broadcast(View buffer, int root) override;
    void all_gather(View mine, View all) override;
    void all_gather(View buffer, std::span<const Range> parts) override;
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override;
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override;
    void barrier() override;
    void send(View buffer, int to, int tag) override;
    void receive(View buffer, int from, int tag) override;
    Ticket post(View buffer, int to, int tag) override;
    void wait(Ticket ticket) override;
    std::unique_ptr<Communicator> split(int colour, int key) override;

    /// A group of these ranks, in this order, of which this is one. Collective among them alone.
    std::unique_ptr<MpiCommunicator> subset(std::span<const int> ranks) const;
    /// The largest tag of a message.
    int largest_tag() const;
    /// From now on no call blocks within MPI: the caller looks again and again, and offers the core to other
    /// threads in between. For processes several of whose threads communicate.
    void poll_from_now_on() { polls_ = true; }

private:
    template <class Begin>
    int polled(const Begin& begin) const;
    void check(int code, const char* operation, std::size_t bytes) const;

    MPI_Comm comm_;
    bool owned_;
    int rank_ = 0, size_ = 1;
    bool polls_ = false;
    std::vector<int> counts_[2], offsets_[2];  ///< kept so that a steady step allocates nothing
    std::vector<MPI_Request> posted_;          ///< by ticket; null where it may be given out
};

/// The ranks that share this rank's memory (its node). Collective.
std::unique_ptr<MpiCommunicator> split_by_node(const MpiCommunicator& world);

}  // namespace trireme
