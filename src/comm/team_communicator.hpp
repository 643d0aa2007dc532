// Communicator for ranks that are threads, of one process or of several. Threads of one process meet in
// shared memory; between processes one of them calls MPI for all, and messages go from thread to thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "comm/team.hpp"

namespace trireme {

class TeamCommunicator final : public Communicator {
public:
    TeamCommunicator(std::shared_ptr<Team> team, int rank);
    ~TeamCommunicator() override;
    TeamCommunicator(const TeamCommunicator&) = delete;
    TeamCommunicator& operator=(const TeamCommunicator&) = delete;

    int rank() const override { return rank_; }
    int size() const override { return static_cast<int>(team_->seats.size()); }
    std::string backend() const override { return team_->links ? "threads and mpi" : "threads"; }
    /// The processes of the group; null where there is only one.
    const MpiCommunicator* processes() const { return team_->links.get(); }

    /// Added in rank order within a process; the processes' sums then as MPI does.
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

    /// See once_per_process().
    std::shared_ptr<void> once(const std::function<std::shared_ptr<void>()>& make);

private:
    const Seat& seat(int rank) const { return team_->seats[static_cast<std::size_t>(rank)]; }
    bool is_here(int rank) const { return seat(rank).process == seat_.process; }
    Team::Shown& shown(int slot) const { return team_->shown[static_cast<std::size_t>(slot)]; }
    int threads() const { return static_cast<int>(team_->here.size()); }
    void show(View buffer, const Range* parts = nullptr);
    template <class Action>
    void by_one(const Action& action);

    void require_alike() const;
    void combine_here(Reduce op, void* into, Range range) const;
    void lay_out(std::span<const Range> parts);
    View scratch(DType type, Range range) const;
    void gather(View mine, View all, std::span<const Range> parts);
    int wire_tag(int tag, int from_slot, int to_slot) const;
    Ticket post_elsewhere(View buffer, int to, int tag);
    void receive_from_elsewhere(View buffer, int from, int tag);

    std::shared_ptr<Team> team_;
    int rank_;
    Seat seat_;
    std::unique_ptr<MpiCommunicator> wire_;  ///< this thread's own use of the processes' handle, for messages

    // Kept so that a steady step allocates nothing.
    std::vector<Range> even_parts_;      ///< by rank
    std::vector<std::int64_t> offsets_;  ///< by rank: where its part lies in the scratch
    std::vector<Range> process_parts_;   ///< by process: where its ranks' parts lie in the scratch
    std::vector<Ticket> posted_;
};

/// The ranks that this process's threads become: [threads], for ranks process * threads + thread. Collective
/// among the processes; each is then to be used by a thread of its own.
std::vector<std::unique_ptr<Communicator>> make_team(MpiCommunicator& processes, int threads);

}  // namespace trireme
