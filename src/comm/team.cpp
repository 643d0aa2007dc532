#include "comm/team.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace trireme {
namespace {

std::vector<int> ranks_in(const std::vector<Seat>& seats, int process) {
    std::vector<int> ranks;
    for (std::size_t r = 0; r < seats.size(); ++r)
        if (seats[r].process == process) ranks.push_back(static_cast<int>(r));
    return ranks;
}

std::vector<int> ranks_by_process(const std::vector<Seat>& seats) {
    std::vector<int> ranks(seats.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return seats[static_cast<std::size_t>(a)].process < seats[static_cast<std::size_t>(b)].process;
    });
    return ranks;
}

int most_slots(const std::vector<Seat>& seats) {
    int most = 0;
    for (const Seat& seat : seats) most = std::max(most, seat.slot + 1);
    return most;
}

}  // namespace

Team::Team(std::vector<Seat> seats_, int process_, std::unique_ptr<MpiCommunicator> links_)
    : seats(std::move(seats_)),
      process(process_),
      here(ranks_in(seats, process)),
      by_process(ranks_by_process(seats)),
      widest(most_slots(seats)),
      links(std::move(links_)),
      largest_tag(links ? links->largest_tag() : 0),
      meeting(static_cast<int>(here.size())),
      mail(static_cast<int>(here.size())),
      shown(here.size()) {
    if (links) links->poll_from_now_on();
}

std::vector<Team::Member> Team::split(const std::vector<std::int64_t>& wishes) const {
    const auto colour_of = [&](int rank) { return wishes[2 * static_cast<std::size_t>(rank)]; };
    const auto key_of = [&](int rank) { return wishes[2 * static_cast<std::size_t>(rank) + 1]; };
    std::set<std::int64_t> colours;  // ascending: all processes make the parts that they share in one order
    for (const int rank : here) colours.insert(colour_of(rank));

    std::vector<Member> members(here.size());
    for (const std::int64_t colour : colours) {
        std::vector<int> ranks, of_part;  // of the part's members here; processes of the part
        for (std::size_t r = 0; r < seats.size(); ++r)
            if (colour_of(static_cast<int>(r)) == colour) ranks.push_back(static_cast<int>(r));
        std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) { return key_of(a) < key_of(b); });
        for (const int rank : ranks) of_part.push_back(seats[static_cast<std::size_t>(rank)].process);
        std::sort(of_part.begin(), of_part.end());
        of_part.erase(std::unique(of_part.begin(), of_part.end()), of_part.end());

        const auto number_of = [&](int process_here) {
            return static_cast<int>(std::lower_bound(of_part.begin(), of_part.end(), process_here) -
                                    of_part.begin());
        };
        std::vector<Seat> placed;
        std::vector<int> taken(of_part.size());
        for (const int rank : ranks) {
            const int number = number_of(seats[static_cast<std::size_t>(rank)].process);
            placed.push_back({number, taken[static_cast<std::size_t>(number)]++});
        }
        auto part_links = of_part.size() > 1 ? links->subset(of_part) : nullptr;
        const auto part =
            std::make_shared<Team>(std::move(placed), number_of(process), std::move(part_links));
        for (std::size_t r = 0; r < ranks.size(); ++r) {
            const Seat& seat = seats[static_cast<std::size_t>(ranks[r])];
            if (seat.process == process)
                members[static_cast<std::size_t>(seat.slot)] = {part, static_cast<int>(r)};
        }
    }
    return members;
}

std::shared_ptr<Team> make_world_team(MpiCommunicator& processes, int threads) {
    std::vector<Seat> seats;
    std::vector<int> all;
    for (int process = 0; process < processes.size(); ++process) {
        all.push_back(process);
        for (int thread = 0; thread < threads; ++thread) seats.push_back({process, thread});
    }
    auto links = processes.size() > 1 ? processes.subset(all) : nullptr;
    return std::make_shared<Team>(std::move(seats), processes.rank(), std::move(links));
}

}  // namespace trireme
