// Every verb of the communicator against exact values: whole numbers that float32 holds, at awkward sizes,
// with uneven parts. Nobody leaves early: a rank that has found a fault goes on with the others.
#include <algorithm>
#include <chrono>
#include <thread>

#include "app/doctor.hpp"
#include "app/text.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::app::doctor {
namespace {

constexpr std::int64_t large = 1000003;  // a prime; 4 MB of float32
constexpr std::int64_t counts[] = {0, 1, 1009, large};
constexpr int cycle = 17;

template <class T>
using Values = std::vector<T>;

/// For what is moved: element i of rank r. Below 2^16, and hardly ever that of another rank or place.
std::int64_t moved(std::int64_t rank, std::int64_t i) {
    return (i * 31 + rank * 7919) % 65521;
}
/// For what is reduced: so small that a sum over a million ranks is exact in float32.
std::int64_t reduced(std::int64_t rank, std::int64_t i) {
    return (i + 3 * rank) % cycle;
}

template <class T>
Values<T> values_of(std::int64_t (*element)(std::int64_t, std::int64_t), int rank, Range range) {
    Values<T> values;
    values.reserve(static_cast<std::size_t>(range.size()));
    for (std::int64_t i = range.begin; i < range.end; ++i) values.push_back(static_cast<T>(element(rank, i)));
    return values;
}

template <class T>
View over(Values<T>& values) {
    return view_of(values.data(), Shape{static_cast<std::int64_t>(values.size())});
}

Values<float> nothing_yet(std::int64_t count) {
    return Values<float>(static_cast<std::size_t>(count), -1.0F);
}

/// The first thing that came out wrong.
class FirstWrong {
public:
    template <class T, class Expected>
    void compare(const std::string& what, const Values<T>& values, const Expected& expected) {
        if (!text_.empty()) return;
        for (std::size_t i = 0; i < values.size(); ++i) {
            const auto right = static_cast<T>(expected(static_cast<std::int64_t>(i)));
            if (values[i] == right) continue;
            text_ = what + ": element " + std::to_string(i) + " is " +
                    to_text(static_cast<double>(values[i])) + ", expected " +
                    to_text(static_cast<double>(right));
            return;
        }
    }
    void expect(bool good, const std::string& text) {
        if (!good && text_.empty()) text_ = text;
    }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

/// What a reduction over so many ranks gives at element i.
class Expected {
public:
    Expected(int ranks, Reduce op) {
        for (std::int64_t i = 0; i < cycle; ++i) {
            std::int64_t result = reduced(0, i);
            for (int r = 1; r < ranks; ++r) {
                const std::int64_t next = reduced(r, i);
                result = op == Reduce::sum   ? result + next
                         : op == Reduce::max ? std::max(result, next)
                                             : std::min(result, next);
            }
            results_[i] = result;
        }
    }
    std::int64_t operator()(std::int64_t i) const { return results_[i % cycle]; }

private:
    std::int64_t results_[cycle] = {};
};

std::string name_of_op(Reduce op) {
    return op == Reduce::sum ? "sum" : op == Reduce::max ? "maximum" : "minimum";
}

/// Parts of growing sizes; where there is little, the first have none.
std::vector<Range> uneven_parts(std::int64_t count, int ranks) {
    std::vector<Range> parts;
    const std::int64_t n = ranks;
    const auto cut = [&](std::int64_t q) { return count * q / n * q / n; };
    for (int q = 0; q < ranks; ++q) parts.push_back({cut(q), cut(q + 1)});
    return parts;
}

Range part_at(const std::vector<Range>& parts, int rank) {
    return parts[static_cast<std::size_t>(rank)];
}

template <class T>
std::string all_reduce(Communicator& comm) {
    FirstWrong wrong;
    for (const Reduce op : {Reduce::sum, Reduce::max, Reduce::min}) {
        const Expected expected(comm.size(), op);
        for (const std::int64_t count : counts) {
            Values<T> values = values_of<T>(reduced, comm.rank(), {0, count});
            comm.all_reduce(over(values), op);
            wrong.compare(name_of_op(op) + " of " + std::to_string(count), values, expected);
        }
    }
    return wrong.text();
}

/// Large ones from eight ranks at most.
std::string broadcast(Communicator& comm) {
    FirstWrong wrong;
    for (const std::int64_t count : counts) {
        const int step = count == large ? (comm.size() + 7) / 8 : 1;
        for (int root = 0; root < comm.size(); root += step) {
            Values<float> values = values_of<float>(moved, comm.rank(), {0, count});
            comm.broadcast(over(values), root);
            wrong.compare("of " + std::to_string(count) + " from rank " + std::to_string(root), values,
                          [&](std::int64_t i) { return moved(root, i); });
        }
    }
    return wrong.text();
}

std::string all_gather(Communicator& comm) {
    FirstWrong wrong;
    for (const std::int64_t whole : counts) {
        const std::int64_t count = whole == large ? large / comm.size() : whole;
        Values<float> mine = values_of<float>(moved, comm.rank(), {0, count}),
                      all = nothing_yet(count * comm.size());
        comm.all_gather(over(mine), over(all));
        wrong.compare(std::to_string(count) + " from each", all,
                      [&](std::int64_t i) { return moved(i / count, i % count); });
    }
    return wrong.text();
}

std::string all_gather_uneven(Communicator& comm) {
    FirstWrong wrong;
    for (const std::int64_t count : counts) {
        const std::vector<Range> parts = uneven_parts(count, comm.size());
        const Range mine = part_at(parts, comm.rank());
        Values<float> all = nothing_yet(count);
        for (std::int64_t i = mine.begin; i < mine.end; ++i)
            all[static_cast<std::size_t>(i)] = static_cast<float>(moved(comm.rank(), i));
        comm.all_gather(over(all), parts);
        std::size_t owner = 0;
        wrong.compare(std::to_string(count) + " in all", all, [&](std::int64_t i) {
            while (parts[owner].end <= i) ++owner;
            return moved(static_cast<std::int64_t>(owner), i);
        });
    }
    return wrong.text();
}

/// Elements that rank r sends to rank q: to a third of the ranks none.
std::int64_t between(int r, int q, std::int64_t count, int ranks) {
    return count == 0 ? 0 : (r + 2 * q + 1) % 3 * std::max<std::int64_t>(1, count / ranks);
}

std::string all_to_all(Communicator& comm) {
    const int ranks = comm.size(), me = comm.rank();
    FirstWrong wrong;
    for (const std::int64_t count : counts) {
        std::vector<Range> out, in;
        for (int q = 0; q < ranks; ++q) {
            const std::int64_t sent = q == 0 ? 0 : out.back().end, received = q == 0 ? 0 : in.back().end;
            out.push_back({sent, sent + between(me, q, count, ranks)});
            in.push_back({received, received + between(q, me, count, ranks)});
        }
        Values<float> send = nothing_yet(out.back().end), receive = nothing_yet(in.back().end);
        for (int q = 0; q < ranks; ++q) {
            const Range part = part_at(out, q);
            for (std::int64_t i = part.begin; i < part.end; ++i)
                send[static_cast<std::size_t>(i)] =
                    static_cast<float>(moved(me + ranks * std::int64_t{q}, i - part.begin));
        }
        comm.all_to_all(over(send), out, over(receive), in);
        int from = 0;
        wrong.compare("about " + std::to_string(count), receive, [&](std::int64_t i) {
            while (part_at(in, from).end <= i) ++from;
            return moved(from + ranks * std::int64_t{me}, i - part_at(in, from).begin);
        });
    }
    return wrong.text();
}

std::string reduce_scatter(Communicator& comm) {
    FirstWrong wrong;
    for (const Reduce op : {Reduce::sum, Reduce::max}) {
        const Expected expected(comm.size(), op);
        for (const std::int64_t count : counts) {
            const std::vector<Range> parts = uneven_parts(count, comm.size());
            const Range mine = part_at(parts, comm.rank());
            Values<float> all = values_of<float>(reduced, comm.rank(), {0, count}),
                          part = nothing_yet(mine.size());
            comm.reduce_scatter(over(all), parts, over(part), op);
            wrong.compare(name_of_op(op) + " of " + std::to_string(count), part,
                          [&](std::int64_t i) { return expected(mine.begin + i); });
        }
    }
    return wrong.text();
}

/// Nobody may leave before the last has come. Who comes last first hears of all others that they are about to
/// enter, then waits: so each can tell by its own clock, and a busy machine raises no false alarm.
std::string barrier(Communicator& comm) {
    constexpr double late_by = 0.05;
    FirstWrong wrong;
    for (const int last : {0, comm.size() - 1}) {
        Values<std::int32_t> here = {1};
        const Stopwatch watch;
        if (comm.rank() == last) {
            for (int r = 0; r < comm.size(); ++r)
                if (r != last) comm.receive(over(here), r, 1);
            std::this_thread::sleep_for(std::chrono::duration<double>(late_by));
        } else {
            comm.send(over(here), last, 1);
        }
        comm.barrier();
        wrong.expect(watch.seconds() >= 0.9 * late_by, "left " + fixed(1e3 * watch.seconds(), 1) +
                                                           " ms after entering, while rank " +
                                                           std::to_string(last) + " was still to come");
    }
    return wrong.text();
}

/// Round a ring. Even ranks send first, odd ones receive first: a send may wait for its receiver.
std::string send_and_receive(Communicator& comm) {
    const int ranks = comm.size(), me = comm.rank(), before = (me + ranks - 1) % ranks;
    FirstWrong wrong;
    for (const std::int64_t count : counts) {
        if (ranks == 1) break;  // nobody to talk to
        Values<float> sent = values_of<float>(moved, me, {0, count}), received = nothing_yet(count);
        const auto send = [&] { comm.send(over(sent), (me + 1) % ranks, 2); };
        if (me % 2 == 0) send();
        comm.receive(over(received), before, 2);
        if (me % 2 == 1) send();
        wrong.compare(std::to_string(count) + " from rank " + std::to_string(before), received,
                      [&](std::int64_t i) { return moved(before, i); });
    }
    return wrong.text();
}

/// Three messages at once, to the rank before; the one with another tag is asked for first, the two others
/// come in their order.
std::string post_and_wait(Communicator& comm) {
    const int ranks = comm.size(), me = comm.rank(), to = (me + ranks - 1) % ranks, from = (me + 1) % ranks;
    constexpr int tags[] = {3, 4, 3}, order[] = {1, 0, 2};
    FirstWrong wrong;
    for (const std::int64_t count : counts) {
        Values<float> sent[3], received = nothing_yet(count);
        Communicator::Ticket tickets[3] = {};
        for (int k = 0; k < 3; ++k) {
            sent[k] = values_of<float>(moved, me + k * ranks, {0, count});
            tickets[k] = comm.post(over(sent[k]), to, tags[k]);
        }
        for (const int k : order) {
            comm.receive(over(received), from, tags[k]);
            wrong.compare("message " + std::to_string(k + 1) + " of " + std::to_string(count) +
                              " from rank " + std::to_string(from),
                          received, [&](std::int64_t i) { return moved(from + k * std::int64_t{ranks}, i); });
        }
        for (const Communicator::Ticket ticket : tickets) comm.wait(ticket);
    }
    return wrong.text();
}

/// Even and odd ranks apart, in reverse order.
std::string split(Communicator& comm) {
    FirstWrong wrong;
    const int parity = comm.rank() % 2;
    std::vector<std::int32_t> members;
    for (int r = comm.size() - 1; r >= 0; --r)
        if (r % 2 == parity) members.push_back(r);
    const std::unique_ptr<Communicator> group = comm.split(parity, -comm.rank());
    const int size = static_cast<int>(members.size());
    wrong.expect(group->size() == size,
                 "a group of " + std::to_string(group->size()) + ", expected " + std::to_string(size));
    const bool placed =
        group->rank() < size && members[static_cast<std::size_t>(group->rank())] == comm.rank();
    wrong.expect(placed, "rank " + std::to_string(comm.rank()) + " is " + std::to_string(group->rank()) +
                             ". of its group, which is to be in reverse order");
    Values<std::int32_t> mine = {comm.rank()}, all(static_cast<std::size_t>(group->size()), -1);
    group->all_gather(over(mine), over(all));
    if (group->size() == size)
        wrong.compare("a group's all-gather", all,
                      [&](std::int64_t i) { return members[static_cast<std::size_t>(i)]; });
    return wrong.text();
}

}  // namespace

const std::vector<CollectiveCheck>& collective_checks() {
    static const std::vector<CollectiveCheck> all = {
        {"all-reduce of float32", all_reduce<float>},
        {"all-reduce of float64", all_reduce<double>},
        {"all-reduce of int32", all_reduce<std::int32_t>},
        {"all-reduce of int64", all_reduce<std::int64_t>},
        {"broadcast from each rank", broadcast},
        {"all-gather", all_gather},
        {"all-gather of uneven parts", all_gather_uneven},
        {"all-to-all of uneven parts", all_to_all},
        {"reduce-scatter into uneven parts", reduce_scatter},
        {"barrier", barrier},
        {"messages sent and received", send_and_receive},
        {"messages posted and waited for", post_and_wait},
        {"split into groups", split},
    };
    return all;
}

}  // namespace trireme::app::doctor
