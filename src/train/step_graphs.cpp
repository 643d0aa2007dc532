#include "train/step_graphs.hpp"

#include <algorithm>
#include <bit>

namespace trireme {
namespace {

/// The loader's buffers take turns, and the last batch of an epoch may be shorter; with loss scaling all that
/// comes anew for each scale.
constexpr std::size_t most = 32;

std::int64_t number_of(const void* address) {
    return std::bit_cast<std::int64_t>(address);
}

}  // namespace

void StepGraphs::make_key(std::span<const LaneBatch> lanes, double scale) {
    key_.clear();
    key_.push_back(std::bit_cast<std::int64_t>(scale));
    for (const LaneBatch& lane : lanes)
        for (const std::int64_t number : {lane.lane, lane.samples(), lane.batch_samples, lane.first_in_batch,
                                          number_of(lane.x.data), number_of(lane.y.data)})
            key_.push_back(number);
}

void StepGraphs::run(std::span<const LaneBatch> lanes, double scale, const std::function<void()>& work) {
    make_key(lanes, scale);
    const auto found = std::find_if(recorded_.begin(), recorded_.end(),
                                    [this](const Recorded& recorded) { return recorded.key == key_; });
    if (found == recorded_.end()) {
        work();
        if (recorded_.size() == most) recorded_.pop_back();
        recorded_.push_front({key_, nullptr});
        return;
    }
    recorded_.splice(recorded_.begin(), recorded_, found);
    if (!found->graph) found->graph = device_.record(work);
    found->graph->launch();
}

}  // namespace trireme
