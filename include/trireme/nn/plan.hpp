// Memory of one lane, planned once. Layers ask for tensors and say from when to when they are needed; the
// plan gives each an offset so that tensors which are never needed together share memory. Time is counted in
// layers: the forward pass visits 0, 1, 2, ..., the backward pass the same numbers in reverse.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "trireme/tensor/view.hpp"

namespace trireme {

/// A moment of a lane: layer `tick` in the forward or in the backward pass.
struct Moment {
    int tick = 0;
    bool backward = false;
};
inline Moment forward_at(int tick) {
    return {tick, false};
}
inline Moment backward_at(int tick) {
    return {tick, true};
}

using TensorId = int;

class WorkspacePlan {
public:
    /// The number of the next layer.
    int next_tick() { return ticks_++; }
    int ticks() const { return ticks_; }

    /// Tensors that are added from now on take memory, or none: those of layers that other ranks run.
    void take_memory(bool take) { takes_memory_ = take; }

    /// A tensor of `per_sample` elements for every sample of the lane plus `fixed` elements, alive from
    /// `from` to `to`, both included.
    TensorId add(std::int64_t per_sample, std::int64_t fixed, DType dtype, Moment from, Moment to);

    /// Assigns offsets for lanes of at most this many samples. First fit, the largest tensors first.
    void lay_out(std::int64_t max_samples);

    std::size_t bytes() const { return bytes_; }
    std::size_t offset(TensorId id) const { return tensors_[static_cast<std::size_t>(id)].offset; }
    DType dtype(TensorId id) const { return tensors_[static_cast<std::size_t>(id)].dtype; }

private:
    struct Tensor {
        std::int64_t per_sample, fixed;
        DType dtype;
        Moment from, to;
        std::size_t offset = 0;
    };
    int time_of(Moment m) const { return m.backward ? 2 * ticks_ - m.tick : m.tick; }

    std::vector<Tensor> tensors_;
    int ticks_ = 0;
    bool takes_memory_ = true;
    std::size_t bytes_ = 0;
};

}  // namespace trireme
