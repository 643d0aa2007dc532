// reduction=reproducible: every lane writes a gradient column of its own; columns are added along the tree of
// lane_tree.hpp, first on the worker, then on the rank, then over the ranks. Over the ranks each rank owns a
// slice of every bucket: it receives that slice of all nodes, adds them in tree order, and the slices are
// gathered.
#include <algorithm>
#include <vector>

#include "parallel/reducers.hpp"
#include "trireme/parallel/lane_tree.hpp"

namespace trireme {
namespace {

class TreeReducer final : public GradientReducer {
public:
    TreeReducer(Communicator& data, Device& device, const ParameterTable& table, const Sharding& sharding,
                Arena& arena, const ReducerOptions& options)
        : data_(data),
          arena_(arena),
          options_(options),
          sharding_(sharding),
          rank_stack_(options.lanes),
          sum_stack_(options.lanes) {
        for (int w = 0; w < options.workers; ++w) add_worker(device, table, w);
        rank_stack_.reserve(64);
        const auto ranks = static_cast<std::size_t>(data.size());
        nodes_.resize(ranks);
        for (std::size_t q = 0; q < ranks; ++q) {
            nodes_[q] = nodes_of(part_of({0, options.lanes}, data.size(), static_cast<std::int64_t>(q)),
                                 options.lanes);
            most_nodes_ = std::max(most_nodes_, nodes_[q].size());
            all_nodes_ += static_cast<std::int64_t>(nodes_[q].size());
        }
        slice_ = round_up(part_of({0, sharding.largest_bucket()}, data.size(), 0).size(), 16);
        if (data.size() > 1)
            received_ = Buffer(device, static_cast<std::size_t>(all_nodes_ * slice_) * sizeof(float));
        slices_.resize(ranks);
        send_.resize(ranks);
        receive_.resize(ranks);
        tree_.reserve(static_cast<std::size_t>(all_nodes_));
        sum_stack_.reserve(64);
    }

    Range lanes_of(int worker) const override { return part_of(options_.my_lanes, options_.workers, worker); }

    void begin_step() override {
        for (Worker& worker : workers_) worker.stack.clear();
    }
    Target begin_lane(int worker, std::int64_t) override { return {workers_[as_index(worker)].top(), false}; }
    void end_lane(Ops& ops, int worker, std::int64_t lane, bool empty) override {
        Worker& w = workers_[as_index(worker)];
        if (empty) ops.fill(w.top()->whole(), 0);
        const int joins = w.stack.push({0, lane});
        for (int at = w.stack.depth() + joins - 1; at >= w.stack.depth(); --at)
            ops.add_scaled(w.columns[as_index(at)]->whole(), 1, w.columns[as_index(at - 1)]->whole());
    }
    void finished_below(std::int64_t) override {}

    void finish_step(Ops& ops) override {
        join_workers(ops);
        if (data_.size() == 1) return;
        for (const Bucket& bucket : sharding_.buckets()) reduce(ops, bucket.range);
    }
    std::int64_t collectives() const override { return collectives_; }

private:
    struct Worker {
        LaneStack stack;
        std::vector<const Column*> columns;  ///< one per stack level
        const Column* top() const { return columns[static_cast<std::size_t>(stack.depth())]; }
    };
    static std::size_t as_index(int i) { return static_cast<std::size_t>(i); }

    void add_worker(Device& device, const ParameterTable& table, int number) {
        Worker worker{LaneStack(options_.lanes), {}};
        worker.stack.reserve(64);
        const int depth = std::max(1, stack_depth(lanes_of(number), options_.lanes));
        for (int level = 0; level < depth; ++level) {
            // The first column of the first worker is the arena's: on one rank the sum ends up there by
            // itself.
            if (number == 0 && level == 0) {
                worker.columns.push_back(&arena_.gradients);
                continue;
            }
            columns_.push_back(std::make_unique<Column>(device, table, "lane gradients"));
            worker.columns.push_back(columns_.back().get());
        }
        workers_.push_back(std::move(worker));
    }

    /// The rank's nodes, in lane order, from those of its workers.
    void join_workers(Ops& ops) {
        LaneStack& stack = rank_stack_;
        stack.clear();
        rank_columns_.clear();
        for (const Worker& worker : workers_)
            for (int at = 0; at < worker.stack.depth(); ++at) {
                rank_columns_.push_back(worker.columns[as_index(at)]);
                for (int joins = stack.push(worker.stack.nodes()[as_index(at)]); joins > 0; --joins) {
                    const Column* top = rank_columns_.back();
                    rank_columns_.pop_back();
                    ops.add_scaled(top->whole(), 1, rank_columns_.back()->whole());
                }
            }
    }

    void reduce(Ops& ops, Range bucket) {
        const int ranks = data_.size();
        for (int q = 0; q < ranks; ++q) slices_[as_index(q)] = part_of(bucket, ranks, q);
        exchange(bucket);
        const View sum = add_in_tree_order(ops, slices_[as_index(data_.rank())].size());
        ops.copy(sum, arena_.gradients.range(slices_[as_index(data_.rank())]));
        for (Range& slice : slices_) slice = {slice.begin - bucket.begin, slice.end - bucket.begin};
        data_.all_gather(arena_.gradients.range(bucket), slices_);
        ++collectives_;
    }

    /// Round j moves every rank's j-th node: its slice for rank q goes to q. The slot of a received slice is
    /// the node's number in lane order.
    void exchange(Range bucket) {
        const auto ranks = static_cast<std::size_t>(data_.size());
        const std::int64_t mine = slices_[as_index(data_.rank())].size();
        for (std::size_t round = 0; round < most_nodes_; ++round) {
            const bool sending = round < rank_columns_.size();
            std::int64_t slot = 0;
            for (std::size_t q = 0; q < ranks; ++q) {
                const std::int64_t begin = slices_[q].begin - bucket.begin;
                send_[q] = sending ? Range{begin, begin + slices_[q].size()} : Range{};
                const std::int64_t at = (slot + static_cast<std::int64_t>(round)) * slice_;
                receive_[q] = round < nodes_[q].size() ? Range{at, at + mine} : Range{};
                slot += static_cast<std::int64_t>(nodes_[q].size());
            }
            const Column& from = sending ? *rank_columns_[round] : arena_.gradients;
            data_.all_to_all(from.range(bucket), send_,
                             view_of(received_.as<float>(), Shape{all_nodes_ * slice_}), receive_);
            ++collectives_;
        }
    }

    View add_in_tree_order(Ops& ops, std::int64_t count) {
        LaneStack& stack = sum_stack_;
        stack.clear();
        tree_.clear();
        std::int64_t slot = 0;
        for (const std::vector<LaneNode>& of_rank : nodes_)
            for (const LaneNode& node : of_rank) {
                tree_.push_back(view_of(received_.as<float>() + slot++ * slice_, Shape{count}));
                for (int joins = stack.push(node); joins > 0; --joins) {
                    const View top = tree_.back();
                    tree_.pop_back();
                    ops.add_scaled(top, 1, tree_.back());
                }
            }
        return tree_.front();
    }

    Communicator& data_;
    Arena& arena_;
    ReducerOptions options_;
    const Sharding& sharding_;
    std::vector<std::unique_ptr<Column>> columns_;
    std::vector<Worker> workers_;
    std::vector<const Column*> rank_columns_;   ///< this rank's nodes, in lane order
    std::vector<std::vector<LaneNode>> nodes_;  ///< of every rank
    std::size_t most_nodes_ = 0;
    std::int64_t all_nodes_ = 0, slice_ = 0;
    Buffer received_;                             ///< [all_nodes_, slice_]
    std::vector<Range> slices_, send_, receive_;  ///< one per rank
    std::vector<View> tree_;
    LaneStack rank_stack_, sum_stack_;
    std::int64_t collectives_ = 0;
};

}  // namespace

std::unique_ptr<GradientReducer> make_tree_reducer(Communicator& data, Device& device,
                                                   const ParameterTable& table, const Sharding& sharding,
                                                   Arena& arena, const ReducerOptions& options) {
    return std::make_unique<TreeReducer>(data, device, table, sharding, arena, options);
}

}  // namespace trireme
