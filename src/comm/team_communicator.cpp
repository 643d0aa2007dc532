#include "comm/team_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "comm/combine.hpp"
#include "comm/operation.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// Elements that are combined at a time: they stay in the nearest cache while the ranks' parts are added.
constexpr std::int64_t block = 4096;
/// In place of a tag: what an all-to-all sends.
constexpr int no_tag = -1;

void* element(View view, std::int64_t index) {
    return static_cast<char*>(view.data) + static_cast<std::size_t>(index) * size_of(view.dtype);
}

View elements(View view, Range range) {
    return {element(view, range.begin), view.dtype, Shape{std::max<std::int64_t>(0, range.size())}};
}

void copy(void* to, const void* from, std::size_t bytes) {
    if (bytes > 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

TeamCommunicator::TeamCommunicator(std::shared_ptr<Team> team, int rank)
    : team_(std::move(team)), rank_(rank), seat_(seat(rank)) {
    if (!team_->links) return;
    wire_ = std::make_unique<MpiCommunicator>(team_->links->handle(), false);
    wire_->poll_from_now_on();
    const std::size_t ranks = team_->seats.size();
    offsets_.resize(ranks);
    process_parts_.resize(static_cast<std::size_t>(team_->links->size()));
    posted_.reserve(ranks);
}

TeamCommunicator::~TeamCommunicator() = default;

/// Makes known to the others of this process what this rank brings.
void TeamCommunicator::show(View buffer, const Range* parts) {
    shown(seat_.slot) = {buffer, parts};
    team_->meeting.wait();
}

/// One of the process's ranks acts, all wait for it, and throw what it throws.
template <class Action>
void TeamCommunicator::by_one(const Action& action) {
    if (seat_.slot == 0) {
        team_->error = nullptr;
        try {
            action();
        } catch (...) {
            team_->error = std::current_exception();
        }
    }
    team_->meeting.wait();
    if (team_->error) std::rethrow_exception(team_->error);
}

/// All ranks of the process show as much, of one type: otherwise they are not in the same collective.
void TeamCommunicator::require_alike() const {
    const View first = shown(0).buffer;
    for (int slot = 1; slot < threads(); ++slot)
        if (shown(slot).buffer.dtype != first.dtype || shown(slot).buffer.count() != first.count())
            throw failure("the ranks of a process do not take part in the same collective: " +
                          std::to_string(first.count()) + " elements against " +
                          std::to_string(shown(slot).buffer.count()));
}

/// What this process's ranks show of the elements `range`, added in the order of the ranks, into `into`.
void TeamCommunicator::combine_here(Reduce op, void* into, Range range) const {
    const DType type = shown(0).buffer.dtype;
    for (std::int64_t at = range.begin; at < range.end; at += block) {
        const std::int64_t count = std::min(block, range.end - at);
        void* to = static_cast<char*>(into) + static_cast<std::size_t>(at - range.begin) * size_of(type);
        copy(to, element(shown(0).buffer, at), static_cast<std::size_t>(count) * size_of(type));
        for (int slot = 1; slot < threads(); ++slot)
            combine(op, type, to, element(shown(slot).buffer, at), count);
    }
}

void TeamCommunicator::all_reduce(View buffer, Reduce op) {
    const Span span = operation(*this, "all-reduce", buffer.bytes());
    sequence_ = one_more(sequence_, "all-reduce", buffer);
    if (size() == 1) return;
    require_reducible(buffer.dtype);
    show(buffer);
    require_alike();
    // Each rank sums a share of the elements, in rank 0's buffer, and carries it to the others.
    const View sums = shown(0).buffer;
    const Range share = part_of({0, buffer.count()}, threads(), seat_.slot);
    const auto spread = [&](Range range) {
        for (int slot = 1; slot < threads(); ++slot)
            copy(element(shown(slot).buffer, range.begin), element(sums, range.begin),
                 elements(sums, range).bytes());
    };
    if (team_->links) {
        combine_here(op, element(sums, share.begin), share);
        team_->meeting.wait();
        by_one([&] { team_->links->all_reduce(sums, op); });
        spread(share);
    } else {
        for (std::int64_t at = share.begin; at < share.end; at += block) {
            const Range range = intersect(share, {at, at + block});
            combine_here(op, element(sums, at), range);
            spread(range);
        }
    }
    team_->meeting.wait();
}

void TeamCommunicator::broadcast(View buffer, int root) {
    const Span span = operation(*this, "broadcast", buffer.bytes());
    sequence_ = one_more(sequence_, "broadcast", buffer);
    show(buffer);
    require_alike();
    const int source = is_here(root) ? seat(root).slot : 0;
    const View content = shown(source).buffer;
    if (team_->links) by_one([&] { team_->links->broadcast(content, seat(root).process); });
    copy(buffer.data, content.data, buffer.bytes());
    team_->meeting.wait();
}

/// Where each rank's part lies in the scratch, and each process's.
void TeamCommunicator::lay_out(std::span<const Range> parts) {
    std::int64_t at = 0;
    int process = -1;
    for (const int rank : team_->by_process) {
        if (seat(rank).process != process) {
            process = seat(rank).process;
            process_parts_[static_cast<std::size_t>(process)].begin = at;
        }
        offsets_[static_cast<std::size_t>(rank)] = at;
        at += std::max<std::int64_t>(0, parts[static_cast<std::size_t>(rank)].size());
        process_parts_[static_cast<std::size_t>(process)].end = at;
    }
}

View TeamCommunicator::scratch(DType type, Range range) const {
    const View whole = {team_->scratch.data(), type, Shape{}};
    return elements(whole, range);
}

void TeamCommunicator::all_gather(View mine, View all) {
    even_parts_.resize(team_->seats.size());
    for (std::size_t r = 0; r < even_parts_.size(); ++r) {
        const std::int64_t begin = static_cast<std::int64_t>(r) * mine.count();
        even_parts_[r] = {begin, begin + mine.count()};
    }
    gather(mine, all, even_parts_);
}

void TeamCommunicator::all_gather(View buffer, std::span<const Range> parts) {
    gather(elements(buffer, parts[static_cast<std::size_t>(rank_)]), buffer, parts);
}

void TeamCommunicator::gather(View mine, View all, std::span<const Range> parts) {
    const Span span = operation(*this, "all-gather", all.bytes());
    const auto part_in_all = [&](int rank) { return elements(all, parts[static_cast<std::size_t>(rank)]); };
    const auto put = [&](int rank, const void* from) {
        copy(part_in_all(rank).data, from, part_in_all(rank).bytes());
    };
    if (!team_->links) {
        show(mine);
        for (int slot = 0; slot < threads(); ++slot)
            put(team_->here[static_cast<std::size_t>(slot)], shown(slot).buffer.data);
        return team_->meeting.wait();
    }
    lay_out(parts);
    const Range whole = {0, process_parts_.back().end};
    if (seat_.slot == 0) team_->reserve(static_cast<std::size_t>(whole.end) * size_of(all.dtype));
    team_->meeting.wait();
    const auto in_scratch = [&](int rank) {
        const std::int64_t at = offsets_[static_cast<std::size_t>(rank)];
        return scratch(all.dtype, {at, at + part_in_all(rank).count()});
    };
    copy(in_scratch(rank_).data, mine.data, mine.bytes());
    team_->meeting.wait();
    by_one([&] { team_->links->all_gather(scratch(all.dtype, whole), process_parts_); });
    for (int rank = 0; rank < size(); ++rank) put(rank, in_scratch(rank).data);
    team_->meeting.wait();
}

void TeamCommunicator::reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) {
    const Span span = operation(*this, "reduce-scatter", all.bytes());
    require_reducible(all.dtype);
    if (!team_->links) {
        show(all);
        require_alike();
        combine_here(op, mine.data, parts[static_cast<std::size_t>(rank_)]);
        return team_->meeting.wait();
    }
    lay_out(parts);
    const std::int64_t total = process_parts_.back().end;
    const Range ours = process_parts_[static_cast<std::size_t>(seat_.process)];
    const Range sums = {total, total + ours.size()};  // behind what is sent
    if (seat_.slot == 0) team_->reserve(scratch(all.dtype, {0, sums.end}).bytes());
    show(all);
    require_alike();
    // Each rank sums a share of what goes out.
    const Range share = part_of({0, total}, threads(), seat_.slot);
    for (int rank = 0; rank < size(); ++rank) {
        const Range part = parts[static_cast<std::size_t>(rank)];
        const std::int64_t at = offsets_[static_cast<std::size_t>(rank)];
        const Range piece = intersect(share, {at, at + part.size()});
        const std::int64_t begin = part.begin + piece.begin - at;
        combine_here(op, scratch(all.dtype, piece).data, {begin, begin + piece.size()});
    }
    team_->meeting.wait();
    by_one([&] {
        team_->links->reduce_scatter(scratch(all.dtype, {0, total}), process_parts_, scratch(all.dtype, sums),
                                     op);
    });
    const std::int64_t at = sums.begin + offsets_[static_cast<std::size_t>(rank_)] - ours.begin;
    copy(mine.data, scratch(all.dtype, {at, at + mine.count()}).data, mine.bytes());
    team_->meeting.wait();
}

void TeamCommunicator::all_to_all(View send, std::span<const Range> send_parts, View recv,
                                  std::span<const Range> recv_parts) {
    const Span span = operation(*this, "all-to-all", send.bytes());
    show(send, send_parts.data());
    posted_.clear();
    for (int rank = 0; rank < size(); ++rank) {
        const Range part = send_parts[static_cast<std::size_t>(rank)];
        if (!is_here(rank) && !part.empty())
            posted_.push_back(post_elsewhere(elements(send, part), rank, no_tag));
    }
    for (int rank = 0; rank < size(); ++rank) {
        const View to = elements(recv, recv_parts[static_cast<std::size_t>(rank)]);
        if (is_here(rank)) {
            const Team::Shown& other = shown(seat(rank).slot);
            const View from = elements(other.buffer, other.parts[rank_]);
            if (from.bytes() != to.bytes())
                throw failure("all-to-all: rank " + std::to_string(rank) + " sends " +
                              std::to_string(from.bytes()) + " bytes, " + std::to_string(to.bytes()) +
                              " were expected");
            copy(to.data, from.data, to.bytes());
        } else if (to.count() > 0) {
            receive_from_elsewhere(to, rank, no_tag);
        }
    }
    for (const Ticket ticket : posted_) wire_->wait(ticket);
    team_->meeting.wait();
}

void TeamCommunicator::barrier() {
    const Span span = operation(*this, "barrier", 0);
    team_->meeting.wait();
    if (team_->links) by_one([&] { team_->links->barrier(); });
}

/// MPI knows processes: the tag says which of their threads a message is from and for.
int TeamCommunicator::wire_tag(int tag, int from_slot, int to_slot) const {
    const std::int64_t width = team_->widest;
    const std::int64_t whole = ((std::int64_t{tag} + 1) * width + from_slot) * width + to_slot;
    if (whole > team_->largest_tag)
        throw failure("the tag " + std::to_string(tag) + " is beyond what MPI takes for " +
                      std::to_string(width) + " threads a process");
    return static_cast<int>(whole);
}

Communicator::Ticket TeamCommunicator::post_elsewhere(View buffer, int to, int tag) {
    return wire_->post(buffer, seat(to).process, wire_tag(tag, seat_.slot, seat(to).slot));
}

void TeamCommunicator::receive_from_elsewhere(View buffer, int from, int tag) {
    wire_->receive(buffer, seat(from).process, wire_tag(tag, seat(from).slot, seat_.slot));
}

void TeamCommunicator::send(View buffer, int to, int tag) {
    wait(post(buffer, to, tag));
}

void TeamCommunicator::receive(View buffer, int from, int tag) {
    const Span span = operation(*this, "receive", buffer.bytes());
    if (is_here(from)) return team_->mail.receive(buffer, seat(from).slot, seat_.slot, tag);
    receive_from_elsewhere(buffer, from, tag);
}

// Tickets for threads of this process are even, those for others odd.
Communicator::Ticket TeamCommunicator::post(View buffer, int to, int tag) {
    if (is_here(to)) return 2 * team_->mail.post(buffer, seat_.slot, seat(to).slot, tag);
    return 2 * post_elsewhere(buffer, to, tag) + 1;
}

void TeamCommunicator::wait(Ticket ticket) {
    const Span span = operation(*this, "wait for a message", 0);
    if (ticket % 2 == 0) return team_->mail.wait(ticket / 2, seat_.slot);
    wire_->wait(ticket / 2);
}

std::unique_ptr<Communicator> TeamCommunicator::split(int colour, int key) {
    std::int64_t wish[] = {colour, key};
    std::vector<std::int64_t> wishes(2 * team_->seats.size());
    all_gather(view_of(wish, Shape{2}),
               view_of(wishes.data(), Shape{static_cast<std::int64_t>(wishes.size())}));
    by_one([&] { team_->parts = team_->split(wishes); });
    const Team::Member mine = std::move(team_->parts[static_cast<std::size_t>(seat_.slot)]);
    team_->meeting.wait();
    if (seat_.slot == 0) team_->parts.clear();
    return std::make_unique<TeamCommunicator>(mine.team, mine.rank);
}

std::shared_ptr<void> TeamCommunicator::once(const std::function<std::shared_ptr<void>()>& make) {
    team_->meeting.wait();
    by_one([&] { team_->made = make(); });
    std::shared_ptr<void> made = team_->made;
    team_->meeting.wait();
    if (seat_.slot == 0) team_->made.reset();
    return made;
}

std::vector<std::unique_ptr<Communicator>> make_team(MpiCommunicator& processes, int threads) {
    const std::shared_ptr<Team> team = make_world_team(processes, threads);
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (const int rank : team->here) ranks.push_back(std::make_unique<TeamCommunicator>(team, rank));
    return ranks;
}

}  // namespace trireme
