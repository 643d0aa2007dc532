#include "capture.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

#include "call.hpp"
#include "graph.hpp"

namespace trireme::cudaemu {
namespace {

std::vector<std::shared_ptr<Capture>>& active() {
    static auto& all = *new std::vector<std::shared_ptr<Capture>>;
    return all;
}

cudaError_t invalidate(Capture& c, cudaError_t e) {
    c.invalid = true;
    return e;
}

std::size_t lane_of(Capture& c, cudaStream_t s) {
    const auto at = std::ranges::find(c.lanes, s);
    if (at != c.lanes.end()) return static_cast<std::size_t>(at - c.lanes.begin());
    c.lanes.push_back(s);
    return c.lanes.size() - 1;
}

void merge(std::vector<std::size_t>& into, const std::vector<std::size_t>& from) {
    for (const std::size_t node : from) {
        if (std::ranges::find(into, node) == into.end()) into.push_back(node);
    }
}

// All nodes that come before the origin's tail, and it itself.
std::set<std::size_t> joined(const Capture& c) {
    std::set<std::size_t> seen;
    std::vector<std::size_t> open = c.origin->tail;
    while (!open.empty()) {
        const std::size_t node = open.back();
        open.pop_back();
        if (seen.insert(node).second)
            open.insert(open.end(), c.nodes[node].needs.begin(), c.nodes[node].needs.end());
    }
    return seen;
}

cudaError_t end(Capture& c, cudaGraph_t* graph) {
    const auto before = joined(c);
    const bool unjoined = std::ranges::any_of(c.lanes, [&](cudaStream_t s) {
        return std::ranges::any_of(s->tail, [&](std::size_t node) { return !before.contains(node); });
    });
    c.over = true;
    for (const cudaStream_t s : c.lanes) {
        s->capture.reset();
        s->tail.clear();
    }
    std::erase_if(active(), [&](const auto& other) { return other.get() == &c; });
    if (c.invalid) return cudaErrorStreamCaptureInvalidated;
    if (unjoined) return cudaErrorStreamCaptureUnjoined;
    *graph = new CUgraph_st{std::make_shared<const std::vector<Node>>(std::move(c.nodes)), c.lanes.size()};
    return cudaSuccess;
}

}  // namespace

cudaError_t capture(cudaStream_t s, Work work) {
    Capture& c = *s->capture;
    if (c.invalid) return cudaErrorStreamCaptureInvalidated;
    c.nodes.push_back({work.kind, std::move(work.describe), std::move(work.make), s->tail, lane_of(c, s)});
    s->tail = {c.nodes.size() - 1};
    return cudaSuccess;
}

cudaError_t record_captured(cudaEvent_t e, cudaStream_t s) {
    if (s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    e->mark.reset();
    e->capture = s->capture;
    e->tail = s->tail;
    return cudaSuccess;
}

cudaError_t wait_captured(cudaStream_t s, cudaEvent_t e) {
    if (s->capture && s->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (!e->capture) return invalidate(*s->capture, cudaErrorStreamCaptureIsolation);
    if (e->capture->over) return cudaErrorCapturedEvent;
    if (e->capture->invalid) return cudaErrorStreamCaptureInvalidated;
    if (s->capture && s->capture != e->capture) return invalidate(*s->capture, cudaErrorStreamCaptureMerge);
    if (!s->capture) {
        s->capture = e->capture;
        lane_of(*s->capture, s);
    }
    merge(s->tail, e->tail);
    return cudaSuccess;
}

cudaError_t forbidden() {
    cudaError_t e = cudaSuccess;
    for (const auto& c : active()) {
        const bool mine = c->thread == std::this_thread::get_id();
        if (c->mode == cudaStreamCaptureModeGlobal || (mine && c->mode == cudaStreamCaptureModeThreadLocal)) {
            e = invalidate(*c, cudaErrorStreamCaptureUnsupported);
        }
    }
    return e;
}

cudaError_t forbidden_on(cudaStream_t s) {
    if (s->capture) return invalidate(*s->capture, cudaErrorStreamCaptureUnsupported);
    return forbidden();
}

cudaError_t default_stream() {
    for (const auto& c : active()) invalidate(*c, cudaErrorStreamCaptureImplicit);
    if (!active().empty()) return cudaErrorStreamCaptureImplicit;
    std::fputs("cudaemu: the default stream is not emulated: it would order all others\n", stderr);
    std::abort();
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t s, cudaStreamCaptureMode mode) {
    return api([&] {
        static unsigned long long count = 0;
        if (s == nullptr || s == cudaStreamLegacy) return cudaErrorStreamCaptureUnsupported;
        if (s->capture) return cudaErrorIllegalState;
        auto c = std::make_shared<Capture>();
        c->id = ++count;
        c->mode = mode;
        c->origin = s;
        lane_of(*c, s);
        s->tail.clear();
        s->capture = c;
        active().push_back(std::move(c));
        return cudaSuccess;
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t* graph) {
    return api([&] {
        *graph = nullptr;
        if (s == nullptr || !s->capture) return cudaErrorIllegalState;
        const auto c = s->capture;
        if (c->origin != s) return invalidate(*c, cudaErrorStreamCaptureUnmatched);
        if (c->mode != cudaStreamCaptureModeRelaxed && c->thread != std::this_thread::get_id()) {
            return cudaErrorStreamCaptureWrongThread;
        }
        return end(*c, graph);
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t s, cudaStreamCaptureStatus* status) {
    return cudaStreamGetCaptureInfo(s, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

// The graph and its nodes are not handed out before the end of the capture.
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t s, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
    return api([&] {
        if (graph != nullptr || nodes != nullptr || edges != nullptr || count != nullptr) {
            return cudaErrorNotSupported;
        }
        if (s == nullptr) return default_stream();
        *status = !s->capture           ? cudaStreamCaptureStatusNone
                  : s->capture->invalid ? cudaStreamCaptureStatusInvalidated
                                        : cudaStreamCaptureStatusActive;
        if (id != nullptr && s->capture) *id = s->capture->id;
        return cudaSuccess;
    });
}

}  // extern "C"
