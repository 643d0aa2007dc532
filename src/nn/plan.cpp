#include "trireme/nn/plan.hpp"

#include <algorithm>
#include <numeric>

#include "trireme/base/range.hpp"

namespace trireme {

TensorId WorkspacePlan::add(std::int64_t per_sample, std::int64_t fixed, DType dtype, Moment from,
                            Moment to) {
    if (!takes_memory_) per_sample = fixed = 0;
    tensors_.push_back({per_sample, fixed, dtype, from, to});
    return static_cast<TensorId>(tensors_.size()) - 1;
}

void WorkspacePlan::lay_out(std::int64_t max_samples) {
    const auto size_of_tensor = [&](const Tensor& t) {
        const std::int64_t elements = t.per_sample * max_samples + t.fixed;
        return round_up(elements * static_cast<std::int64_t>(size_of(t.dtype)), 64);
    };
    std::vector<std::size_t> order(tensors_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return size_of_tensor(tensors_[a]) > size_of_tensor(tensors_[b]);
    });

    struct Placed {
        Range bytes;
        int from, to;
    };
    std::vector<Placed> placed;  // sorted by offset
    std::int64_t total = 0;
    for (const std::size_t id : order) {
        Tensor& tensor = tensors_[id];
        const int from = time_of(tensor.from), to = time_of(tensor.to);
        const std::int64_t size = size_of_tensor(tensor);
        std::int64_t offset = 0;
        for (const Placed& other : placed) {
            const bool together = from <= other.to && other.from <= to;
            if (together && offset + size > other.bytes.begin && offset < other.bytes.end)
                offset = other.bytes.end;
        }
        tensor.offset = static_cast<std::size_t>(offset);
        total = std::max(total, offset + size);
        const Placed entry{{offset, offset + size}, from, to};
        placed.insert(
            std::upper_bound(placed.begin(), placed.end(), entry,
                             [](const Placed& a, const Placed& b) { return a.bytes.begin < b.bytes.begin; }),
            entry);
    }
    bytes_ = static_cast<std::size_t>(total);
}

}  // namespace trireme
