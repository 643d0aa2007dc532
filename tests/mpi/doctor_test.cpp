// Doctor's checks can fail: a communicator that does one thing wrong is found out, by the check that is for
// it and on the rank that got the wrong value.
#include <mpi.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "app/doctor.hpp"
#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "trireme/comm/agree.hpp"

using namespace trireme;
using namespace trireme::app::doctor;
using trireme::testing::contains;

namespace {

/// Does as the real one does, but for one verb; values are spoiled on one rank alone.
class Faulty final : public Communicator {
public:
    Faulty(Communicator& real, std::string verb, int victim)
        : real_(real), verb_(std::move(verb)), victim_(victim) {}

    int rank() const override { return real_.rank(); }
    int size() const override { return real_.size(); }
    std::string backend() const override { return real_.backend(); }

    void all_reduce(View buffer, Reduce op) override {
        real_.all_reduce(buffer, op);
        spoil("all_reduce", buffer);
    }
    void broadcast(View buffer, int root) override {
        real_.broadcast(buffer, root);
        spoil("broadcast", buffer);
    }
    void all_gather(View mine, View all) override {
        real_.all_gather(mine, all);
        spoil("all_gather", all);
    }
    void all_gather(View buffer, std::span<const Range> parts) override {
        real_.all_gather(buffer, parts);
        spoil("all_gather of parts", buffer);
    }
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override {
        real_.all_to_all(send, send_parts, recv, recv_parts);
        spoil("all_to_all", recv);
    }
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override {
        real_.reduce_scatter(all, parts, mine, op);
        spoil("reduce_scatter", mine);
    }
    void barrier() override {
        if (verb_ != "barrier") real_.barrier();
    }
    void send(View buffer, int to, int tag) override { real_.send(spoiled_copy("send", buffer), to, tag); }
    void receive(View buffer, int from, int tag) override {
        real_.receive(buffer, from, tag);
        spoil("receive", buffer);
    }
    Ticket post(View buffer, int to, int tag) override {
        return real_.post(spoiled_copy("post", buffer), to, tag);
    }
    void wait(Ticket ticket) override { real_.wait(ticket); }
    std::unique_ptr<Communicator> split(int colour, int key) override {
        return real_.split(verb_ == "split" ? 0 : colour, key);
    }

private:
    bool is_victim(const std::string& verb) const { return verb == verb_ && real_.rank() == victim_; }
    /// The last element becomes 0.5: no check expects that, or -1 where it is whole.
    void spoil(const std::string& verb, View view) const {
        if (!is_victim(verb) || view.count() == 0) return;
        const auto last = static_cast<std::size_t>(view.count() - 1);
        if (view.dtype == DType::f32) view.span<float>()[last] = 0.5F;
        if (view.dtype == DType::f64) view.span<double>()[last] = 0.5;
        if (view.dtype == DType::i32) view.span<std::int32_t>()[last] = -1;
        if (view.dtype == DType::i64) view.span<std::int64_t>()[last] = -1;
    }
    View spoiled_copy(const std::string& verb, View view) {
        if (!is_victim(verb) || view.dtype != DType::f32) return view;
        const auto values = view.span<float>();
        copies_.emplace_back(values.begin(), values.end());
        const View copy = view_of(copies_.back().data(), Shape{view.count()});
        spoil(verb, copy);
        return copy;
    }

    Communicator& real_;
    std::string verb_;
    int victim_;
    std::deque<std::vector<float>> copies_;  // posted messages stay until they are waited for
};

/// Which checks say that something is wrong, and on which ranks: "barrier" -> {1, 2}.
using Complaints = std::map<std::string, std::vector<int>>;

Complaints complaints_about(Communicator& comm, Communicator& honest, std::string* last_text = nullptr) {
    Complaints found;
    for (const CollectiveCheck& check : collective_checks()) {
        const std::string wrong = check.wrong_here(comm);
        if (!wrong.empty() && last_text != nullptr) *last_text = wrong;
        for (int rank = 0; rank < honest.size(); ++rank)
            if (broadcast_value(honest, wrong.empty() ? 0 : 1, rank) != 0) found[check.name].push_back(rank);
    }
    return found;
}

const std::vector<std::string> all_reduces = {"all-reduce of float32", "all-reduce of float64",
                                              "all-reduce of int32", "all-reduce of int64"};

}  // namespace

TEST_CASE("doctor finds nothing wrong with a communicator that is right", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    CHECK(complaints_about(world, world).empty());
    const auto alone = world.split(world.rank(), 0);
    CHECK(complaints_about(*alone, world).empty());
}

TEST_CASE("one wrong value on one rank is found, and its rank and value are named", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const int size = world.size();
    const std::map<std::string, std::vector<std::string>> checks_of = {
        {"all_reduce", all_reduces},
        {"broadcast", {"broadcast from each rank"}},
        {"all_gather", {"all-gather"}},
        {"all_gather of parts", {"all-gather of uneven parts"}},
        {"all_to_all", {"all-to-all of uneven parts"}},
        {"reduce_scatter", {"reduce-scatter into uneven parts"}},
        {"receive", {"messages posted and waited for", "messages sent and received"}},
    };
    for (const auto& [verb, checks] : checks_of)
        for (int victim = 0; victim < size; ++victim) {
            Faulty faulty(world, verb, victim);
            Complaints expected;
            for (const std::string& check : checks)
                if (size > 1 || check != "messages sent and received") expected[check] = {victim};
            std::string text;
            const Complaints found = complaints_about(faulty, world, &text);
            INFO(verb << " on rank " << victim << " of " << size << ": " << text);
            CHECK(found == expected);
            if (world.rank() == victim) {
                CHECK_THAT(text, contains(" is " + std::string(text.find("-1") != text.npos ? "-1" : "0.5")));
                CHECK_THAT(text, contains(", expected "));
            }
        }
}

TEST_CASE("a message sent wrong is found where it arrives", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const int size = world.size(), victim = size - 1;
    Faulty poster(world, "post", victim);
    CHECK(complaints_about(poster, world) ==
          Complaints{{"messages posted and waited for", {(victim + size - 1) % size}}});
    if (size == 1) return;
    Faulty sender(world, "send", victim);
    CHECK(complaints_about(sender, world) == Complaints{{"messages sent and received", {0}}});
}

TEST_CASE("a barrier that lets through and a split that does not split are found", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    if (world.size() == 1) return;
    std::vector<int> everybody;
    for (int rank = 0; rank < world.size(); ++rank) everybody.push_back(rank);
    // Whoever does not come last notices; of the two turns each rank is last in one at most.
    Faulty open(world, "barrier", 0);
    CHECK(complaints_about(open, world) == Complaints{{"barrier", everybody}});
    Faulty whole(world, "split", 0);
    CHECK(complaints_about(whole, world) == Complaints{{"split into groups", everybody}});
}

TEST_CASE("findings name the first rank, alike on all ranks", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const int last = world.size() - 1;
    Findings findings(world, "rank " + std::to_string(world.rank()) + " on here", true);
    findings.check("good", "", "12 ms");
    findings.check("bad", world.rank() == last ? "element 3 is 4,\nexpected 5" : "");
    findings.check("worse", std::string(1000, 'x'));
    findings.note("a remark");
    REQUIRE(findings.checks().size() == 3);
    CHECK(findings.checks()[0].ok);
    CHECK(findings.checks()[0].detail == "12 ms");
    CHECK(!findings.checks()[1].ok);
    REQUIRE(findings.problems().size() == 2);
    CHECK(findings.problems()[0] ==
          "bad: rank " + std::to_string(last) + " on here: element 3 is 4, expected 5");
    CHECK_THAT(findings.problems()[1], contains("worse: rank 0 on here: xxx"));
    if (last > 0) CHECK_THAT(findings.problems()[1], contains(std::to_string(last + 1) + " ranks in all"));
    CHECK(findings.notes() == std::vector<std::string>{"a remark"});
}

TEST_CASE("a rank with another program is named with both versions", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    CHECK(difference_in_builds(world, "HDF5 1\nMPI 2\n").empty());
    const bool differs = world.rank() > 0;
    const std::string found = difference_in_builds(world, differs ? "HDF5 1\nMPI 3\n" : "HDF5 1\nMPI 2\n");
    CHECK(found == (differs ? "MPI 3, but rank 0 has MPI 2" : ""));
}

TEST_CASE("a clock that goes ahead is found, with its rank", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const int last = world.size() - 1;
    const auto clock = [&](double ahead) {
        return [&world, last, ahead] {
            return system_clock_seconds() + (world.rank() == last && last > 0 ? ahead : 0);
        };
    };
    const ClockSkew good = measure_clock_skew(world, clock(0));
    CHECK(good.seconds <= 2 * good.uncertainty + 1e-6);
    if (last == 0) return;
    const ClockSkew fast = measure_clock_skew(world, clock(5)), slow = measure_clock_skew(world, clock(-7));
    CHECK(std::abs(fast.seconds - 5) <= 2 * fast.uncertainty + 1e-6);
    CHECK(fast.ahead == last);
    CHECK(std::abs(slow.seconds - 7) <= 2 * slow.uncertainty + 1e-6);
    CHECK(slow.behind == last);
}

TEST_CASE("every pair is measured, within and between hosts", "[mpi][doctor]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const std::int64_t size = world.size();
    std::vector<int> nodes;  // the last rank stands alone
    for (int rank = 0; rank < size; ++rank) nodes.push_back(rank + 1 == size ? 1 : 0);
    const Links links = measure_links(world, nodes);
    if (size == 1) {
        CHECK(links.kinds.empty());
        return;
    }
    REQUIRE(links.kinds.size() == (size > 2 ? 3 : 2));
    CHECK(links.kinds.front().pairs == size * (size - 1) / 2);
    CHECK(links.kinds.back().name == "between hosts");
    CHECK(links.kinds.back().pairs == size - 1);
    CHECK(links.kinds.back().slowest.b == size - 1);
    for (const LinkKind& kind : links.kinds) {
        CHECK(kind.slowest.a < kind.slowest.b);
        CHECK(kind.slowest.latency_seconds > 0);
        CHECK(kind.slowest.bytes_per_s > 0);
        CHECK(kind.slowest.bytes_per_s <= kind.median_bytes_per_s);
        CHECK(links.kinds.front().slowest.bytes_per_s <= kind.slowest.bytes_per_s);
    }
    CHECK(links.rounds == links.all_rounds);
    CHECK(links.one_at_a_time);
}
