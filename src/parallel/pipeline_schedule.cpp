// The orders of work in a pipeline. One simulation makes them all: a rank goes forward until it has as many
// lanes in flight as its schedule allows, then takes turns. An order that has come about in time (a backward
// pass takes twice as long as a forward pass) can be executed in time, for any number of lanes, ranks and
// chunks.
#include <algorithm>
#include <limits>

#include "trireme/base/error.hpp"
#include "trireme/parallel/pipeline.hpp"

namespace trireme {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// When each lane has left each stage, forward and backward.
class Progress {
public:
    explicit Progress(const PipelineShape& shape)
        : shape_(shape), done_{std::vector<double>(cells(), never), std::vector<double>(cells(), never)} {}

    /// From when on an action of a rank can be done.
    double ready(int rank, const PipelineAction& action) const {
        const int stage = action.chunk * shape_.ranks + rank;
        if (!action.backward) return stage == 0 ? 0 : done_[0][cell(stage - 1, action.lane)];
        const double forward = done_[0][cell(stage, action.lane)];
        if (stage == shape_.stages() - 1) return forward;
        return std::max(forward, done_[1][cell(stage + 1, action.lane)]);
    }
    void finish(int rank, const PipelineAction& action, double when) {
        done_[action.backward ? 1 : 0][cell(action.chunk * shape_.ranks + rank, action.lane)] = when;
    }

private:
    std::size_t cells() const { return static_cast<std::size_t>(shape_.stages() * shape_.lanes); }
    std::size_t cell(int stage, std::int64_t lane) const {
        return static_cast<std::size_t>(stage * shape_.lanes + lane);
    }
    PipelineShape shape_;
    std::vector<double> done_[2];
};

/// Lanes in groups of as many as there are ranks; each group goes through one chunk after the other.
std::vector<PipelineAction> order_of(const PipelineShape& shape, bool backward) {
    std::vector<PipelineAction> order;
    for (std::int64_t group = 0; group < shape.lanes; group += shape.ranks)
        for (int c = 0; c < shape.chunks; ++c)
            for (std::int64_t lane = group; lane < std::min(group + shape.ranks, shape.lanes); ++lane)
                order.push_back({lane, backward ? shape.chunks - 1 - c : c, backward});
    return order;
}

/// One rank in the simulation.
struct Rank {
    std::size_t forwards = 0, backwards = 0;  ///< done
    std::int64_t limit = 0;                   ///< of forward passes whose backward pass is still to come
    double free_at = 0;
    std::vector<PipelineAction> done{};
};

class Simulation {
public:
    explicit Simulation(const PipelineShape& shape)
        : shape_(shape), progress_(shape), orders_{order_of(shape, false), order_of(shape, true)} {
        for (int r = 0; r < shape.ranks; ++r) ranks_.push_back({.limit = limit_of(r)});
    }

    std::vector<std::vector<PipelineAction>> run() {
        for (std::size_t left = 2 * orders_[0].size() * ranks_.size(); left > 0; --left) {
            Next next = earliest([this](int r) { return planned(r); });
            // Everybody waits for something that comes later: with a last group of few lanes the plan is too
            // tight. Whoever can do anything goes on with that.
            if (next.rank < 0) next = earliest([this](int r) { return possible(r); });
            take(next);
        }
        std::vector<std::vector<PipelineAction>> all;
        for (Rank& rank : ranks_) all.push_back(std::move(rank.done));
        return all;
    }

private:
    struct Choice {
        double start = never;
        bool backward = false;
    };
    struct Next {
        int rank = -1;
        Choice choice{};
    };
    template <class Choose>
    Next earliest(const Choose& choose) const {
        Next best;
        for (int r = 0; r < shape_.ranks; ++r)
            if (const Choice choice = choose(r); choice.start < best.choice.start) best = {r, choice};
        return best;
    }

    std::int64_t limit_of(int rank) const {
        switch (shape_.schedule) {
            case PipelineSchedule::gpipe:
                return std::numeric_limits<std::int64_t>::max() / 2;
            case PipelineSchedule::one_f_one_b:
                return shape_.ranks - rank;
            case PipelineSchedule::interleaved:
                return 2 * (shape_.ranks - rank - 1) + (shape_.chunks - 1) * shape_.ranks + 1;
        }
        return 1;
    }

    double start(int r, bool backward) const {
        const Rank& rank = ranks_[static_cast<std::size_t>(r)];
        const auto& order = orders_[backward ? 1 : 0];
        const std::size_t next = backward ? rank.backwards : rank.forwards;
        return next < order.size() ? std::max(rank.free_at, progress_.ready(r, order[next])) : never;
    }
    /// Forward as long as the limit allows it, else backward.
    Choice planned(int r) const {
        const Rank& rank = ranks_[static_cast<std::size_t>(r)];
        const bool more = rank.forwards < orders_[0].size();
        const bool may = static_cast<std::int64_t>(rank.forwards - rank.backwards) < rank.limit;
        const bool backward = !(more && may);
        return {start(r, backward), backward};
    }
    Choice possible(int r) const {
        const double forward = start(r, false), backward = start(r, true);
        return backward <= forward ? Choice{backward, true} : Choice{forward, false};
    }

    void take(const Next& next) {
        Rank& rank = ranks_[static_cast<std::size_t>(next.rank)];
        const bool backward = next.choice.backward;
        const PipelineAction action =
            orders_[backward ? 1 : 0][backward ? rank.backwards++ : rank.forwards++];
        rank.free_at = next.choice.start + (backward ? 2 : 1);
        progress_.finish(next.rank, action, rank.free_at);
        rank.done.push_back(action);
    }

    PipelineShape shape_;
    Progress progress_;
    std::vector<PipelineAction> orders_[2];
    std::vector<Rank> ranks_;
};

}  // namespace

PipelineSchedule pipeline_schedule_from(const std::string& name) {
    if (name == "gpipe") return PipelineSchedule::gpipe;
    if (name == "1f1b") return PipelineSchedule::one_f_one_b;
    if (name == "interleaved") return PipelineSchedule::interleaved;
    throw usage_error("parallel.schedule=" + name + ": expected gpipe, 1f1b or interleaved");
}

std::vector<std::vector<PipelineAction>> pipeline_actions(const PipelineShape& shape) {
    return Simulation(shape).run();
}

int lanes_in_flight(std::span<const PipelineAction> actions) {
    // Lanes come and go in order, but with several chunks a later one may be through before an earlier one.
    int chunks = 1;
    for (const PipelineAction& action : actions) chunks = std::max(chunks, action.chunk + 1);
    std::vector<int> left;  // backward passes to come, by lane
    std::size_t oldest = 0;
    int most = 0;
    for (const PipelineAction& action : actions) {
        const auto lane = static_cast<std::size_t>(action.lane);
        if (lane >= left.size()) left.resize(lane + 1, chunks);
        if (action.backward) --left[lane];
        most = std::max(most, static_cast<int>(left.size() - oldest));
        while (oldest < left.size() && left[oldest] == 0) ++oldest;
    }
    return std::max(most, 1);
}

double bubble_fraction(const PipelineShape& shape, std::span<const double> forward,
                       std::span<const double> backward) {
    const std::vector<std::vector<PipelineAction>> actions = pipeline_actions(shape);
    Progress progress(shape);
    std::vector<std::size_t> next(actions.size(), 0);
    std::vector<double> free_at(actions.size(), 0);
    double busy = 0, end = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < actions.size(); ++r)
            for (; next[r] < actions[r].size(); ++next[r], moved = true) {
                const PipelineAction& action = actions[r][next[r]];
                const double ready = progress.ready(static_cast<int>(r), action);
                if (ready == never) break;
                const std::size_t stage = static_cast<std::size_t>(action.chunk) * actions.size() + r;
                const double cost = action.backward ? backward[stage] : forward[stage];
                free_at[r] = std::max(free_at[r], ready) + cost;
                progress.finish(static_cast<int>(r), action, free_at[r]);
                busy += cost;
                end = std::max(end, free_at[r]);
            }
    }
    return end > 0 ? 1 - busy / (end * static_cast<double>(actions.size())) : 0;
}

std::vector<Range> cut_into_stages(std::span<const double> costs, int stages) {
    const auto layers = static_cast<std::int64_t>(costs.size());
    if (stages > 1 && layers < 2)
        throw usage_error("parallel.pipeline: " + std::to_string(stages) +
                          " stages need at least two layers, but the model has " + std::to_string(layers));
    std::vector<Range> cut;
    if (layers < stages) {
        for (int s = 0; s < stages; ++s) {
            const std::int64_t begin = s + 1 < stages ? std::min<std::int64_t>(s, layers - 1) : layers - 1;
            const bool empty = s + 1 < stages && s >= layers - 1;
            cut.push_back({begin, begin + (empty ? 0 : 1)});
        }
        return cut;
    }
    // worst[s][n]: the most expensive of s + 1 stages over the first n layers, at best.
    std::vector<double> sum{0};
    for (const double cost : costs) sum.push_back(sum.back() + cost);
    const auto width = static_cast<std::size_t>(layers) + 1;
    const auto count = static_cast<std::size_t>(stages);
    std::vector<std::vector<double>> worst(count, std::vector<double>(width, never));
    std::vector<std::vector<std::size_t>> from(count, std::vector<std::size_t>(width, 0));
    for (std::size_t n = 1; n < width; ++n) worst[0][n] = sum[n];
    for (std::size_t s = 1; s < count; ++s)
        for (std::size_t n = s + 1; n < width; ++n)
            for (std::size_t k = s; k < n; ++k)
                if (const double here = std::max(worst[s - 1][k], sum[n] - sum[k]); here < worst[s][n]) {
                    worst[s][n] = here;
                    from[s][n] = k;
                }
    std::size_t end = width - 1;
    for (std::size_t s = count; s-- > 0;) {
        const std::size_t begin = s > 0 ? from[s][end] : 0;
        cut.push_back({static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)});
        end = begin;
    }
    std::reverse(cut.begin(), cut.end());
    return cut;
}

}  // namespace trireme
