// Orders of work in a pipeline: executable for any shape, and what their names promise.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/parallel/pipeline.hpp"

using namespace trireme;

namespace {

constexpr PipelineSchedule schedules[] = {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::interleaved};

/// Executes the orders with waiting receives, rank by rank, until nobody can go on; returns what was left.
std::size_t left_over(const PipelineShape& shape, const std::vector<std::vector<PipelineAction>>& actions) {
    std::set<std::tuple<int, std::int64_t, bool>> done;  // stage, lane, backward
    std::vector<std::size_t> next(actions.size(), 0);
    std::size_t left = 0;
    for (const auto& of_rank : actions) left += of_rank.size();
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < actions.size(); ++r) {
            while (next[r] < actions[r].size()) {
                const PipelineAction& a = actions[r][next[r]];
                const int stage = a.chunk * shape.ranks + static_cast<int>(r);
                const bool last = stage == shape.stages() - 1;
                const bool ready = a.backward ? done.contains({stage, a.lane, false}) &&
                                                    (last || done.contains({stage + 1, a.lane, true}))
                                              : stage == 0 || done.contains({stage - 1, a.lane, false});
                if (!ready) break;
                REQUIRE(done.insert({stage, a.lane, a.backward}).second);  // once each
                ++next[r];
                --left;
                moved = true;
            }
        }
    }
    return left;
}

std::string text_of(const std::vector<PipelineAction>& actions) {
    std::string text;
    for (const PipelineAction& action : actions)
        text += (action.backward ? "B" : "F") + std::to_string(action.lane) + " ";
    return text;
}

/// Two ranks whose messages would go on streams: notes what is asked of it.
class Noting final : public Communicator {
public:
    int rank() const override { return 0; }
    int size() const override { return 2; }
    std::string backend() const override { return "notes"; }
    bool on_streams() const override { return true; }
    void connect(std::span<const Route> announced) override {
        ++connected;
        routes.assign(announced.begin(), announced.end());
    }
    void receive(View, int from, int tag) override { last = {from, 0, tag}; }
    Ticket post(View, int to, int tag) override {
        last = {0, to, tag};
        return 0;
    }
    void wait(Ticket) override {}
    bool on_route() const { return std::ranges::find(routes, last) != routes.end(); }

    void all_reduce(View, Reduce) override {}
    void broadcast(View, int) override {}
    void all_gather(View, View) override {}
    void all_gather(View, std::span<const Range>) override {}
    void all_to_all(View, std::span<const Range>, View, std::span<const Range>) override {}
    void reduce_scatter(View, std::span<const Range>, View, Reduce) override {}
    void barrier() override {}
    void send(View, int, int) override {}
    std::unique_ptr<Communicator> split(int, int) override { return nullptr; }

    int connected = 0;
    std::vector<Route> routes;
    Route last;
};

}  // namespace

TEST_CASE("messages take their routes from the second pass of a kind on", "[unit][parallel]") {
    Noting ranks;
    Pipeline pipeline(ranks, PipelineSchedule::one_f_one_b, 1, 4);
    using Samples = std::vector<std::int64_t>;
    const auto routed = [&](bool training, const Samples& samples) {
        pipeline.begin(training, samples);
        pipeline.send_activation(0, 0, {});
        const bool sent = ranks.on_route();
        pipeline.receive_gradient(0, {});
        CHECK(ranks.on_route() == sent);
        return sent;
    };
    CHECK_FALSE(routed(true, {4, 4, 3, 3}));
    CHECK(ranks.connected == 0);  // other groups come first
    CHECK(routed(true, {4, 4, 3, 3}));
    CHECK_FALSE(routed(true, {4, 4, 3, 0}));   // the last batch of an epoch
    CHECK_FALSE(routed(false, {4, 4, 3, 3}));  // validation
    for (int again = 0; again < 2; ++again) {
        CHECK(routed(true, {4, 4, 3, 3}));
        CHECK(routed(true, {4, 4, 3, 0}));
        CHECK(routed(false, {4, 4, 3, 3}));
    }
    CHECK(ranks.connected == 1);
    CHECK(ranks.routes.size() == 2);
}

TEST_CASE("every order can be executed and leaves nothing out", "[unit][parallel]") {
    for (const PipelineSchedule schedule : schedules)
        for (const int ranks : {1, 2, 3, 4, 7})
            for (const int chunks : {1, 2, 3})
                for (const std::int64_t lanes : {0, 1, 2, 3, 5, 8, 13}) {
                    if (chunks > 1 && schedule != PipelineSchedule::interleaved) continue;
                    const PipelineShape shape{schedule, ranks, chunks, lanes};
                    INFO(static_cast<int>(schedule)
                         << " " << ranks << " ranks " << chunks << " chunks " << lanes << " lanes");
                    const auto actions = pipeline_actions(shape);
                    REQUIRE(static_cast<int>(actions.size()) == ranks);
                    for (const auto& of_rank : actions)
                        REQUIRE(static_cast<std::int64_t>(of_rank.size()) == 2 * lanes * chunks);
                    CHECK(left_over(shape, actions) == 0);
                    // Gradients of a chunk are added in the order of lanes, on every rank.
                    for (const auto& of_rank : actions)
                        for (int chunk = 0; chunk < chunks; ++chunk) {
                            std::int64_t before = -1;
                            for (const PipelineAction& action : of_rank)
                                if (action.backward && action.chunk == chunk) {
                                    CHECK(action.lane == before + 1);
                                    before = action.lane;
                                }
                        }
                }
}

TEST_CASE("neighbours go through what they exchange in the same order", "[unit][parallel]") {
    for (const PipelineSchedule schedule : schedules)
        for (const int ranks : {2, 3, 4, 7})
            for (const int chunks : {1, 2, 3})
                for (const std::int64_t lanes : {1, 2, 3, 5, 8, 13}) {
                    if (chunks > 1 && schedule != PipelineSchedule::interleaved) continue;
                    const PipelineShape shape{schedule, ranks, chunks, lanes};
                    // By way and sending rank: the messages' lanes and stages, as sent and as received.
                    using Messages = std::vector<std::pair<std::int64_t, int>>;
                    std::map<std::pair<bool, int>, Messages> sent, received;
                    const auto actions = pipeline_actions(shape);
                    for (int rank = 0; rank < ranks; ++rank)
                        for (const PipelineAction& a : actions[static_cast<std::size_t>(rank)]) {
                            const int stage = a.chunk * ranks + rank, way = a.backward ? -1 : 1;
                            const auto there = [&](int s) { return s >= 0 && s < shape.stages(); };
                            if (there(stage + way))
                                sent[{a.backward, rank}].emplace_back(a.lane, stage + way);
                            if (there(stage - way))
                                received[{a.backward, shape.rank_of(stage - way)}].emplace_back(a.lane,
                                                                                                stage);
                        }
                    INFO(static_cast<int>(schedule)
                         << " " << ranks << " ranks " << chunks << " chunks " << lanes << " lanes");
                    CHECK(sent == received);
                }
}

TEST_CASE("1f1b and gpipe are what they are called", "[unit][parallel]") {
    const auto one = pipeline_actions({PipelineSchedule::one_f_one_b, 3, 1, 5});
    CHECK(text_of(one[0]) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4 ");
    CHECK(text_of(one[1]) == "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4 ");
    CHECK(text_of(one[2]) == "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 ");
    const auto all = pipeline_actions({PipelineSchedule::gpipe, 2, 1, 3});
    CHECK(text_of(all[0]) == "F0 F1 F2 B0 B1 B2 ");
    // On one rank a lane is through before the next one starts.
    CHECK(text_of(pipeline_actions({PipelineSchedule::one_f_one_b, 1, 1, 3})[0]) == "F0 B0 F1 B1 F2 B2 ");

    CHECK(lanes_in_flight(one[0]) == 3);
    CHECK(lanes_in_flight(one[2]) == 1);
    CHECK(lanes_in_flight(all[0]) == 3);
}

TEST_CASE("the bubble is as in the literature", "[unit][parallel]") {
    // (p - 1) / (m + p - 1) for equal stages; over c chunks of a c-th of the work, (p - 1) / (c m + p - 1).
    for (const int ranks : {1, 2, 4})
        for (const std::int64_t lanes : {4, 8, 16}) {
            const std::vector<double> forward(static_cast<std::size_t>(ranks), 1.0),
                backward(static_cast<std::size_t>(ranks), 2.0);
            const double expected = (ranks - 1.0) / (static_cast<double>(lanes) + ranks - 1.0);
            for (const auto schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b})
                CHECK(bubble_fraction({schedule, ranks, 1, lanes}, forward, backward) == Approx(expected));
            const std::vector<double> half(static_cast<std::size_t>(2 * ranks), 0.5),
                whole(static_cast<std::size_t>(2 * ranks), 1.0);
            CHECK(bubble_fraction({PipelineSchedule::interleaved, ranks, 2, lanes}, half, whole) ==
                  Approx((ranks - 1.0) / (2.0 * static_cast<double>(lanes) + ranks - 1.0)));
        }
    // A stage that takes three times as long makes the others wait.
    const std::vector<double> forward = {1, 3}, backward = {2, 6};
    CHECK(bubble_fraction({PipelineSchedule::one_f_one_b, 2, 1, 100}, forward, backward) ==
          Approx(1.0 / 3).epsilon(0.02));
    CHECK(bubble_fraction({PipelineSchedule::one_f_one_b, 2, 1, 0}, forward, backward) == 0);
}

TEST_CASE("layers are cut where it costs least", "[unit][parallel]") {
    const auto cut = [](std::vector<double> costs, int stages) {
        std::vector<std::int64_t> ends;
        std::int64_t at = 0;
        for (const Range stage : cut_into_stages(costs, stages)) {
            CHECK(stage.begin <= stage.end);
            if (!stage.empty()) {
                CHECK(stage.begin == at);
                at = stage.end;
            }
            ends.push_back(stage.end);
        }
        CHECK(at == static_cast<std::int64_t>(costs.size()));
        return ends;
    };
    CHECK(cut({1, 1, 1, 1}, 2) == std::vector<std::int64_t>{2, 4});
    CHECK(cut({5, 1, 1, 1, 1}, 2) == std::vector<std::int64_t>{1, 5});
    CHECK(cut({1, 2, 3, 4, 5, 6}, 3) == std::vector<std::int64_t>{3, 5, 6});
    CHECK(cut({3, 2, 1}, 1) == std::vector<std::int64_t>{3});
    CHECK(cut({0, 0, 0}, 3) == std::vector<std::int64_t>{1, 2, 3});
    CHECK(cut({1, 1}, 4) == std::vector<std::int64_t>{1, 1, 1, 2});
    CHECK_THROWS_AS(cut_into_stages(std::vector<double>{1}, 2), Error);
}
