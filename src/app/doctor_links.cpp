// How fast ranks reach each other, and whose clock is off.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "app/bench_rates.hpp"
#include "app/doctor.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app::doctor {
namespace {

constexpr int tag = 5;

/// What a pair finds out about its link.
struct Trip {
    double latency_seconds = 0, bytes_per_s = 0;
};

/// Seconds of the fastest of so many exchanges: what disturbs one of them is no property of the link.
double fastest_exchange(Communicator& comm, View message, int other, bool first, int times) {
    double fastest = std::numeric_limits<double>::infinity();
    for (int i = 0; i < times; ++i) {
        const Stopwatch watch;
        if (first) comm.send(message, other, tag);
        comm.receive(message, other, tag);
        if (!first) comm.send(message, other, tag);
        fastest = std::min(fastest, watch.seconds());
    }
    return fastest;
}

/// To be called by both of a pair; right on the one that is first. `large`: the message whose rate counts.
Trip try_link(Communicator& comm, View large, int other, bool first) {
    constexpr double budget = 0.005;  // seconds; slow links make do with fewer exchanges
    std::int64_t word = 0;
    const View small = view_of(&word, Shape{1});
    fastest_exchange(comm, small, other, first, 3);  // the first ones set up the connection
    const double small_seconds = fastest_exchange(comm, small, other, first, 20);
    const double estimate = fastest_exchange(comm, large, other, first, 1);
    std::int64_t times =
        std::clamp(static_cast<std::int64_t>(budget / estimate), std::int64_t{1}, std::int64_t{8});
    const View agreed = view_of(&times, Shape{1});
    if (first)
        comm.send(agreed, other, tag);
    else
        comm.receive(agreed, other, tag);
    const double seconds =
        std::min(estimate, fastest_exchange(comm, large, other, first, static_cast<int>(times)));
    return {small_seconds / 2, 2 * static_cast<double>(large.bytes()) / seconds};
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

void add_kind(Links& links, const std::string& name, const std::vector<Link>& all) {
    if (all.empty()) return;
    LinkKind kind;
    kind.name = name;
    kind.pairs = static_cast<std::int64_t>(all.size());
    kind.slowest = *std::min_element(
        all.begin(), all.end(), [](const Link& a, const Link& b) { return a.bytes_per_s < b.bytes_per_s; });
    std::vector<double> latencies, rates;
    for (const Link& link : all) {
        latencies.push_back(link.latency_seconds);
        rates.push_back(link.bytes_per_s);
    }
    kind.median_latency_seconds = median(std::move(latencies));
    kind.median_bytes_per_s = median(std::move(rates));
    links.kinds.push_back(std::move(kind));
}

}  // namespace

std::vector<Reduction> time_all_reduces(Runtime& runtime, std::int64_t most_bytes) {
    constexpr double longest = 5;  // seconds for one size
    constexpr int at_least = 10;   // repetitions that are needed for one
    Communicator& world = runtime.mesh.world();
    std::vector<Reduction> reductions;
    for (std::int64_t bytes = 4; bytes <= most_bytes && world.size() > 1; bytes *= 8) {
        if (!reductions.empty() && 8 * at_least * reductions.back().seconds > longest) break;
        const double seconds = reduce_seconds(world, runtime, bytes / 4, 0.06);
        const double bus = 2.0 * (world.size() - 1) / world.size() * static_cast<double>(bytes) / seconds;
        reductions.push_back({bytes, seconds, bus});
    }
    return reductions;
}

int opponent(int rank, int size, int round) {
    // The circle method: the last player stays, the others move on by one place each round. With an odd
    // number whoever would meet the missing one rests.
    const int players = size + size % 2, moving = players - 1;
    const auto of_mover = [&](int mover) { return ((2 * round - mover) % moving + moving) % moving; };
    int other = 0;
    if (rank == moving)
        other = round % moving;
    else
        other = of_mover(rank) == rank ? moving : of_mover(rank);
    return other < size ? other : -1;
}

Links measure_links(Communicator& world, const std::vector<int>& nodes) {
    constexpr int few = 8, most_rounds = 255;
    const int size = world.size(), me = world.rank();
    Links links;
    links.all_rounds = size - 1 + size % 2;
    links.rounds = size == 1 ? 0 : std::min(links.all_rounds, most_rounds);
    links.one_at_a_time = size <= few;
    const auto round_at = [&](int i) {
        return static_cast<int>(std::int64_t{i} * links.all_rounds / std::max(1, links.rounds));
    };

    std::vector<float> message(262144);  // 1 MB
    const View large = view_of(message.data(), Shape{static_cast<std::int64_t>(message.size())});
    std::vector<Trip> mine(static_cast<std::size_t>(links.rounds));
    for (int i = 0; i < links.rounds; ++i) {
        const int other = opponent(me, size, round_at(i));
        for (int turn = 0; turn < (links.one_at_a_time ? size : 1); ++turn) {
            world.barrier();
            const bool my_turn = !links.one_at_a_time || turn == std::min(me, other);
            if (other >= 0 && my_turn)
                mine[static_cast<std::size_t>(i)] = try_link(world, large, other, me < other);
        }
    }

    static_assert(sizeof(Trip) == 2 * sizeof(double));
    std::vector<Trip> trips(mine.size() * static_cast<std::size_t>(size));
    const auto numbers = [](std::vector<Trip>& list) {
        return view_of(reinterpret_cast<double*>(list.data()),
                       Shape{static_cast<std::int64_t>(2 * list.size())});
    };
    world.all_gather(numbers(mine), numbers(trips));
    std::vector<Link> all, within, between;
    for (int a = 0; a < size; ++a)
        for (int i = 0; i < links.rounds; ++i) {
            const int b = opponent(a, size, round_at(i));
            if (b <= a) continue;
            const Trip trip = trips[static_cast<std::size_t>(a) * mine.size() + static_cast<std::size_t>(i)];
            const Link link{a, b, trip.latency_seconds, trip.bytes_per_s};
            all.push_back(link);
            const bool together = nodes[static_cast<std::size_t>(a)] == nodes[static_cast<std::size_t>(b)];
            (together ? within : between).push_back(link);
        }
    add_kind(links, "all pairs", all);
    add_kind(links, "within a host", within);
    add_kind(links, "between hosts", between);
    return links;
}

ClockSkew measure_clock_skew(Communicator& world, const std::function<double()>& clock) {
    constexpr int times = 8;
    const auto size = static_cast<std::size_t>(world.size());
    std::vector<double> ahead(size), unsure(size);  // of rank 0's clock
    double theirs = 0;
    const View answer = view_of(&theirs, Shape{1});
    for (int rank = 1; rank < world.size(); ++rank) {
        double shortest = std::numeric_limits<double>::infinity();
        for (int i = 0; i < times; ++i) {
            if (world.rank() == 0) {
                // Their clock was read somewhere between; the middle is off by half the trip at most.
                const Stopwatch watch;
                const double sent = clock();
                world.send(answer, rank, tag);
                world.receive(answer, rank, tag);
                const double trip = watch.seconds();
                if (trip >= shortest) continue;
                shortest = trip;
                ahead[static_cast<std::size_t>(rank)] = theirs - (sent + trip / 2);
                unsure[static_cast<std::size_t>(rank)] = trip / 2;
            } else if (world.rank() == rank) {
                world.receive(answer, 0, tag);
                theirs = clock();
                world.send(answer, 0, tag);
            }
        }
    }
    const auto count = static_cast<std::int64_t>(size);
    world.broadcast(view_of(ahead.data(), Shape{count}), 0);
    world.broadcast(view_of(unsure.data(), Shape{count}), 0);
    const auto [least, most] = std::minmax_element(ahead.begin(), ahead.end());
    return {.seconds = *most - *least,
            .uncertainty = *std::max_element(unsure.begin(), unsure.end()),
            .behind = static_cast<int>(least - ahead.begin()),
            .ahead = static_cast<int>(most - ahead.begin())};
}

double system_clock_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace trireme::app::doctor
