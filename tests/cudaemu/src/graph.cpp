#include "graph.hpp"

#include <algorithm>
#include <utility>

#include "call.hpp"
#include "machine.hpp"
#include "options.hpp"

namespace trireme::cudaemu {
namespace {

using Nodes = std::vector<Node>;

std::shared_ptr<std::vector<void*>> actors(std::size_t lanes) {
    auto made = std::shared_ptr<std::vector<void*>>(new std::vector<void*>, [](std::vector<void*>* all) {
        for (void* actor : *all) retire(actor);
        delete all;
    });
    for (std::size_t i = 0; i < lanes; ++i) made->push_back(san::actor());
    return made;
}

// One run of a graph: its nodes one after another, in any order that the dependencies allow.
class Replay {
public:
    Replay(std::shared_ptr<const Nodes> nodes, std::shared_ptr<std::vector<void*>> actors)
        : nodes_(std::move(nodes)), actors_(std::move(actors)), done_(nodes_->size()) {
        for (const Node& node : *nodes_) {
            ops_.push_back(node.make());
            after_.push_back(std::make_unique<char>());
        }
    }

    Progress run() {
        if (!begun_) san::release(&begun_);
        begun_ = true;
        for (const std::size_t i : runnable()) {
            const Progress progress = step(i);
            if (progress == Progress::waiting) continue;
            if (left_ != 0) return Progress::moved;
            for (const auto& place : after_) san::acquire(place.get());
            return Progress::done;
        }
        return left_ == 0 ? Progress::done : Progress::waiting;
    }

    std::string describe() const {
        std::string text = "a graph of " + std::to_string(done_.size()) + " nodes, of which " +
                           std::to_string(done_.size() - left_) + " are done";
        for (const std::size_t i : candidates()) text += ", and now " + (*nodes_)[i].describe();
        return text;
    }

private:
    std::vector<std::size_t> candidates() const {
        std::vector<std::size_t> can;
        for (std::size_t i = 0; i < done_.size(); ++i) {
            const auto& needs = (*nodes_)[i].needs;
            if (!done_[i] && std::ranges::all_of(needs, [&](std::size_t n) { return done_[n]; })) {
                can.push_back(i);
            }
        }
        return can;
    }

    std::vector<std::size_t> runnable() const {
        auto can = candidates();
        if (options().streams == Streams::others_first) std::ranges::reverse(can);
        if (options().streams == Streams::shuffled) std::ranges::shuffle(can, dice());
        return can;
    }

    Progress step(std::size_t i) {
        const Node& node = (*nodes_)[i];
        const san::Acting lane((*actors_)[node.lane]);
        const san::Aside mechanics;
        san::acquire(&begun_);
        for (const std::size_t n : node.needs) san::acquire(after_[n].get());
        const Progress progress = ops_[i].run();
        if (progress != Progress::done) return progress;
        san::release(after_[i].get());
        done_[i] = true;
        --left_;
        return progress;
    }

    std::shared_ptr<const Nodes> nodes_;
    std::shared_ptr<std::vector<void*>> actors_;
    std::vector<bool> done_;
    std::size_t left_ = done_.size();
    std::vector<Op> ops_;
    std::vector<std::unique_ptr<char>> after_;  // where a node's successors find what it did
    bool begun_ = false;
};

// What of the new graph an update cannot put in place of the old.
cudaGraphExecUpdateResult difference(const Nodes& old, const Nodes& fresh) {
    if (old.size() != fresh.size()) return cudaGraphExecUpdateErrorTopologyChanged;
    for (std::size_t i = 0; i < old.size(); ++i) {
        if (old[i].needs != fresh[i].needs) return cudaGraphExecUpdateErrorTopologyChanged;
        if (old[i].kind != fresh[i].kind) return cudaGraphExecUpdateErrorNodeTypeChanged;
    }
    return cudaGraphExecUpdateSuccess;
}

}  // namespace
}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
    return api([&] {
        if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
        *exec = new CUgraphExec_st{graph->nodes, actors(graph->lanes), nullptr};
        return cudaSuccess;
    });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t s) {
    return api([&] {
        if (exec == nullptr) return cudaErrorInvalidValue;
        if (s == nullptr) return default_stream();
        if (s->capture) return cudaErrorStreamCaptureUnsupported;
        auto replay = std::make_shared<Replay>(exec->nodes, exec->actors);
        Op op;
        op.run = [replay] { return replay->run(); };
        op.describe = [replay] { return replay->describe(); };
        op.needs = exec->last;
        op.sets = exec->last = std::make_shared<Mark>(Mark{s});
        enqueue(s, std::move(op));
        run_if_eager(s);
        return cudaSuccess;
    });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t s) {
    return api([&] {
        if (exec == nullptr) return cudaErrorInvalidValue;
        return s == nullptr ? default_stream() : cudaSuccess;
    });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo* info) {
    return api([&] {
        *info = {};
        info->result = difference(*exec->nodes, *graph->nodes);
        if (info->result != cudaGraphExecUpdateSuccess) return cudaErrorGraphExecUpdateFailure;
        exec->nodes = graph->nodes;  // a launch under way keeps what it began with
        if (graph->lanes > exec->actors->size()) exec->actors = actors(graph->lanes);
        return cudaSuccess;
    });
}

// Nodes have no handles here: for their number only.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
    return api([&] {
        if (nodes != nullptr) return cudaErrorNotSupported;
        *count = graph->nodes->size();
        return cudaSuccess;
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    return api([&] {
        delete graph;
        return cudaSuccess;
    });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    return api([&] {
        delete exec;
        return cudaSuccess;
    });
}

}  // extern "C"
