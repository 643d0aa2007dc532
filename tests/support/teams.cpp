#include "support/teams.hpp"

#include <mpi.h>

#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "comm/team_communicator.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::testing {
namespace {

constexpr std::int64_t untouched = 77;

/// Element i of rank r. Sums over twelve ranks fit into a byte, and every type holds all of them exactly.
std::int64_t value(int rank, std::int64_t i) {
    return i % 13 + rank;
}

template <class T>
std::vector<T> values(int rank, Range range) {
    std::vector<T> list;
    for (std::int64_t i = range.begin; i < range.end; ++i) list.push_back(static_cast<T>(value(rank, i)));
    return list;
}

template <class T>
View all_of(std::vector<T>& list) {
    return view_of(list.data(), Shape{static_cast<std::int64_t>(list.size())});
}

/// list[at ...] is that part of rank r's values.
template <class T>
bool holds(const std::vector<T>& list, std::int64_t at, int rank, Range range) {
    for (std::int64_t i = range.begin; i < range.end; ++i)
        if (list[static_cast<std::size_t>(at + i - range.begin)] != static_cast<T>(value(rank, i)))
            return false;
    return true;
}

/// Parts of n elements for each rank: uneven, the first empty, with gaps between them.
std::vector<Range> uneven_parts(int ranks, std::int64_t n, std::int64_t gap) {
    std::vector<Range> parts;
    std::int64_t at = gap;
    for (int q = 0; q < ranks; ++q) {
        const std::int64_t size = q == 0 ? 0 : part_of({0, n}, ranks, q).size() + q;
        parts.push_back({at, at + size});
        at += size + gap;
    }
    return parts;
}

template <class T>
void check_reductions(Communicator& comm, Faults& faults, std::int64_t n, const std::string& where) {
    const int ranks = comm.size();
    std::vector<T> sum = values<T>(comm.rank(), {0, n}), most = sum, least = sum;
    comm.all_reduce(all_of(sum), Reduce::sum);
    comm.all_reduce(all_of(most), Reduce::max);
    comm.all_reduce(all_of(least), Reduce::min);
    bool exact = true;
    for (std::int64_t i = 0; i < n; ++i)
        exact = exact &&
                sum[static_cast<std::size_t>(i)] == static_cast<T>(i % 13 * ranks + ranks * (ranks - 1) / 2);
    faults.expect(exact, "all-reduce, sum" + where);
    faults.expect(holds(most, 0, ranks - 1, {0, n}), "all-reduce, max" + where);
    faults.expect(holds(least, 0, 0, {0, n}), "all-reduce, min" + where);

    const std::vector<Range> spread = uneven_parts(ranks, n, 0);
    std::vector<T> all = values<T>(comm.rank(), {0, spread.back().end});
    const Range mine = spread[static_cast<std::size_t>(comm.rank())];
    std::vector<T> part(static_cast<std::size_t>(mine.size()));
    comm.reduce_scatter(all_of(all), spread, all_of(part), Reduce::sum);
    exact = true;
    for (std::int64_t i = mine.begin; i < mine.end; ++i)
        exact = exact && part[static_cast<std::size_t>(i - mine.begin)] ==
                             static_cast<T>(i % 13 * ranks + ranks * (ranks - 1) / 2);
    faults.expect(exact, "reduce-scatter" + where);
}

template <class T>
void check_moves(Communicator& comm, Faults& faults, std::int64_t n, const std::string& where) {
    const int ranks = comm.size(), me = comm.rank();
    for (int root = 0; root < ranks; ++root) {
        std::vector<T> list = values<T>(me, {0, n});
        comm.broadcast(all_of(list), root);
        faults.expect(holds(list, 0, root, {0, n}), "broadcast from " + std::to_string(root) + where);
    }

    std::vector<T> mine = values<T>(me, {0, n}), all(static_cast<std::size_t>(n * ranks));
    comm.all_gather(all_of(mine), all_of(all));
    bool exact = true;
    for (int q = 0; q < ranks; ++q) exact = exact && holds(all, n * q, q, {0, n});
    faults.expect(exact, "all-gather" + where);

    constexpr std::int64_t gap = 3;
    const std::vector<Range> parts = uneven_parts(ranks, n, gap);
    std::vector<T> buffer(static_cast<std::size_t>(parts.back().end + gap), static_cast<T>(untouched));
    const Range part = parts[static_cast<std::size_t>(me)];
    for (std::int64_t i = 0; i < part.size(); ++i)
        buffer[static_cast<std::size_t>(part.begin + i)] = static_cast<T>(value(me, i));
    comm.all_gather(all_of(buffer), parts);
    exact = true;
    for (int q = 0; q < ranks; ++q) {
        const Range other = parts[static_cast<std::size_t>(q)];
        exact = exact && holds(buffer, other.begin, q, {0, other.size()});
        for (std::int64_t i = other.end; i < other.end + gap; ++i)
            exact = exact && buffer[static_cast<std::size_t>(i)] == static_cast<T>(untouched);
    }
    faults.expect(exact, "all-gather of uneven parts" + where);
}

/// Rank r sends rank q elements [q, q + length) of its values, some none at all.
template <class T>
void check_exchange(Communicator& comm, Faults& faults, std::int64_t n, const std::string& where) {
    const int ranks = comm.size(), me = comm.rank();
    const auto length = [&](int from, int to) {
        return (from + to) % 3 == 2 ? 0 : n / ranks + 2 * from + to;
    };
    std::vector<T> send, recv;
    std::vector<Range> out, in;
    for (int q = 0; q < ranks; ++q) {
        const std::vector<T> part = values<T>(me, {q, q + length(me, q)});
        out.push_back(
            {static_cast<std::int64_t>(send.size()), static_cast<std::int64_t>(send.size() + part.size())});
        send.insert(send.end(), part.begin(), part.end());
        const auto at = static_cast<std::int64_t>(recv.size()) + 1;  // with a gap before each
        in.push_back({at, at + length(q, me)});
        recv.resize(static_cast<std::size_t>(in.back().end), static_cast<T>(untouched));
    }
    comm.all_to_all(all_of(send), out, all_of(recv), in);
    bool exact = true;
    for (int q = 0; q < ranks; ++q) {
        const Range part = in[static_cast<std::size_t>(q)];
        exact = exact && recv[static_cast<std::size_t>(part.begin - 1)] == static_cast<T>(untouched) &&
                holds(recv, part.begin, q, {me, me + part.size()});
    }
    faults.expect(exact, "all-to-all" + where);
}

template <class T>
void check_type(Communicator& comm, Faults& faults, std::int64_t n) {
    const std::string where = " of " + std::to_string(n) + " " + std::string(name_of(dtype_of<T>)) +
                              " on rank " + std::to_string(comm.rank()) + " of " +
                              std::to_string(comm.size());
    check_reductions<T>(comm, faults, n, where);
    check_moves<T>(comm, faults, n, where);
    check_exchange<T>(comm, faults, n, where);
}

/// A part has the ranks it must have, in this order, and works.
void check_part(Communicator& part, Faults& faults, int old_rank, const std::vector<int>& expected,
                const std::string& name) {
    std::vector<std::int32_t> found(static_cast<std::size_t>(part.size()));
    std::int32_t mine = old_rank;
    part.all_gather(view_of(&mine, Shape{1}), all_of(found));
    faults.expect(std::vector<int>(found.begin(), found.end()) == expected,
                  name + ": not its members in order");
    if (part.size() != static_cast<int>(expected.size())) return;
    faults.expect(expected[static_cast<std::size_t>(part.rank())] == old_rank, name + ": wrong rank");
    check_collectives(part, faults, {5});
}

}  // namespace

std::string Faults::text() const {
    return std::accumulate(found_.begin(), found_.end(), std::string(),
                           [](const std::string& all, const std::string& one) { return all + one + "\n"; });
}

std::string on_each(const std::vector<std::unique_ptr<Communicator>>& ranks,
                    const std::function<void(Communicator&, Faults&)>& action) {
    Faults faults;
    std::vector<std::thread> threads;
    for (const auto& rank : ranks)
        threads.emplace_back([&faults, &action, comm = rank.get()] {
            try {
                action(*comm, faults);
            } catch (const std::exception& error) {
                std::fprintf(stderr, "rank %d of %d: %s\n", comm->rank(), comm->size(), error.what());
                std::_Exit(1);
            }
        });
    for (std::thread& thread : threads) thread.join();
    return faults.text();
}

std::string on_team(MpiCommunicator& processes, int threads,
                    const std::function<void(Communicator&, Faults&)>& action) {
    return on_each(make_team(processes, threads), action);
}

std::string on_team(int threads, const std::function<void(Communicator&, Faults&)>& action) {
    MpiCommunicator self(MPI_COMM_SELF, false);
    return on_team(self, threads, action);
}

void check_collectives(Communicator& comm, Faults& faults, const std::vector<std::int64_t>& sizes) {
    for (const std::int64_t n : sizes) {
        check_type<float>(comm, faults, n);
        check_type<double>(comm, faults, n);
        check_type<std::int32_t>(comm, faults, n);
        check_type<std::int64_t>(comm, faults, n);
        check_type<std::uint8_t>(comm, faults, n);
        comm.barrier();
    }
}

void check_messages(Communicator& comm, Faults& faults) {
    const int ranks = comm.size(), me = comm.rank();
    constexpr int messages = 6;
    const auto size_of_message = [](int k) { return std::int64_t{k} * k * k * 300; };  // none, up to 37500
    const auto content = [](int from, int to, int k) { return 1000 * from + 10 * to + k; };
    for (int round = 0; round < 2; ++round) {  // the second finds tickets that were used
        std::vector<std::vector<std::int32_t>> sent;
        std::vector<Communicator::Ticket> tickets;
        for (int to = 0; to < ranks; ++to)
            for (int k = 0; k < messages; ++k)
                sent.emplace_back(static_cast<std::size_t>(size_of_message(k)), content(me, to, k));
        std::size_t next = 0;
        for (int to = 0; to < ranks; ++to)
            for (int k = 0; k < messages; ++k)
                tickets.push_back(comm.post(all_of(sent[next++]), to, 5 + k % 2));
        // Of the two tags the later one first, and the senders in another order than they post in.
        for (int from = ranks - 1; from >= 0; --from)
            for (const int tag : {6, 5})
                for (int k = tag - 5; k < messages; k += 2) {
                    std::vector<std::int32_t> got(static_cast<std::size_t>(size_of_message(k)), -1);
                    comm.receive(all_of(got), from, tag);
                    faults.expect(got == std::vector<std::int32_t>(got.size(), content(from, me, k)),
                                  "message " + std::to_string(k) + " from " + std::to_string(from) + " to " +
                                      std::to_string(me));
                }
        for (const Communicator::Ticket ticket : tickets) comm.wait(ticket);
    }
    // One that waits for another: a chain through all ranks.
    std::int64_t count = 0;
    if (me > 0) comm.receive(view_of(&count, Shape{1}), me - 1, 9);
    faults.expect(count == me, "a chain of messages at rank " + std::to_string(me));
    ++count;
    if (me + 1 < ranks) comm.send(view_of(&count, Shape{1}), me + 1, 9);
}

void check_splits(Communicator& comm, Faults& faults) {
    const int ranks = comm.size(), me = comm.rank();
    const auto members = [&](auto belongs, bool reversed) {
        std::vector<int> list;
        for (int q = 0; q < ranks; ++q)
            if (belongs(q)) list.push_back(q);
        return reversed ? std::vector<int>(list.rbegin(), list.rend()) : list;
    };
    const auto thirds = comm.split(me % 3, -me);
    check_part(*thirds, faults, me, members([&](int q) { return q % 3 == me % 3; }, true),
               "thirds, reversed");
    const auto odd = comm.split(me == 1 ? 5 : 900, 0);  // one alone, and all others
    check_part(*odd, faults, me, members([&](int q) { return (q == 1) == (me == 1); }, false),
               "one left out");
    const auto pairs = odd->split(odd->rank() / 2, 7);  // pairs of what is left
    std::vector<int> partners;
    const std::vector<int> rest = members([&](int q) { return (q == 1) == (me == 1); }, false);
    for (std::size_t i = 0; i < rest.size(); ++i)
        if (static_cast<int>(i) / 2 == odd->rank() / 2) partners.push_back(rest[i]);
    check_part(*pairs, faults, me, partners, "pairs of the rest");
    const auto halves = comm.split(me < (ranks + 1) / 2 ? 1 : 0, me);
    check_part(*halves, faults, me,
               members([&](int q) { return (q < (ranks + 1) / 2) == (me < (ranks + 1) / 2); }, false),
               "halves");
    check_messages(*thirds, faults);

    // A second thread on a group of its own, beside the first.
    const auto twin = comm.duplicate();
    std::thread second([&] {
        for (int i = 0; i < 10; ++i) check_collectives(*twin, faults, {3});
    });
    for (int i = 0; i < 10; ++i) check_collectives(comm, faults, {4});
    second.join();
}

}  // namespace trireme::testing
