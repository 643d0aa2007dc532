// What the ranks of a group that are threads of this process share: who is where, what they show each other
// during a collective, and the MPI group of the processes where there are several.
#pragma once

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "comm/mailbox.hpp"
#include "comm/meeting.hpp"
#include "comm/mpi_communicator.hpp"

namespace trireme {

/// Where a rank lies: in which of the group's processes, and as which of the group's threads there. Slots of
/// a process follow the ranks.
struct Seat {
    int process = 0, slot = 0;
};

struct Team {
    /// Seats by rank. `links`: the processes of the group; null where it has only one.
    Team(std::vector<Seat> seats_, int process_, std::unique_ptr<MpiCommunicator> links_);

    /// At least so many bytes, kept for the next time. For slot 0, while no other thread is in a collective.
    void reserve(std::size_t bytes) {
        if (bytes > scratch.size()) scratch.resize(bytes);
    }

    struct Member {
        std::shared_ptr<Team> team;  ///< a part of this one
        int rank = 0;
    };
    /// The parts that `wishes` (colour and key of each rank) make of the group: for each slot, its own. To be
    /// called once in each process.
    std::vector<Member> split(const std::vector<std::int64_t>& wishes) const;

    const std::vector<Seat> seats;
    const int process;                             ///< this one's number within the group
    const std::vector<int> here;                   ///< ranks of this process, by slot
    const std::vector<int> by_process;             ///< all ranks, those of a process one behind the other
    const int widest;                              ///< ranks of the process that has most
    const std::unique_ptr<MpiCommunicator> links;  ///< used by slot 0 alone
    const int largest_tag;

    Meeting meeting;
    Mailbox mail;
    struct Shown {
        View buffer;
        const Range* parts = nullptr;
    };
    std::vector<Shown> shown;        ///< by slot, during a collective
    std::vector<std::byte> scratch;  ///< what goes between processes, in the order of by_process
    std::exception_ptr error;        ///< met by slot 0
    std::shared_ptr<void> made;      ///< by slot 0 for all
    std::vector<Member> parts;       ///< during a split, by slot
};

/// The ranks process * threads + thread, as many threads in each process. Collective among the processes.
std::shared_ptr<Team> make_world_team(MpiCommunicator& processes, int threads);

}  // namespace trireme
