// Brings the samples of this rank's lanes into memory ahead of their use: one prefetch thread reads whole
// runs of rows, converts, normalises and lays images channels-last, or cuts windows of tokens. Slots are
// allocated once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "trireme/data/dataset.hpp"
#include "trireme/data/sampler.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

/// The samples of one lane. Views are valid until the next call of next().
struct LaneBatch {
    std::int64_t epoch = 0, step = 0, lane = 0;
    Range positions;                  ///< in the epoch
    std::int64_t first_in_batch = 0;  ///< position of the first sample within the global batch
    std::int64_t batch_samples = 0;   ///< samples of the global batch
    View x;  ///< [n, ...] f32; images [n, C, H, W], channels-last in memory; tokens [n, context] i32
    View y;  ///< [n] i32 class labels, or [n, k] f32 targets (k = 1 where y is [n]); tokens [n, context] i32
    std::span<const std::int64_t> ids;

    std::int64_t samples() const { return positions.size(); }
};

struct LoaderOptions {
    EpochPlan plan;
    Range my_lanes;  ///< lanes that this rank executes, in this order
    Shuffle shuffle = Shuffle::full;
    std::uint64_t seed = 1;
    std::int64_t chunk = 1024;         ///< of shuffle=chunk
    bool class_labels = true;          ///< y as i32 labels, else as f32 targets
    std::int64_t classes = 0;          ///< labels and tokens must be below it; 0: whatever fits 32 bits
    bool unit_targets = false;         ///< targets must lie in [0, 1]
    std::int64_t ignore_index = -100;  ///< the one label outside [0, classes) that is let through; pads the
                                       ///< targets of a short last window
    Normalization normalization{};
    std::string cache = "auto";  ///< auto, memory, none
    int prefetch = 2;            ///< steps read ahead, at least 1
    int crop = 0;                ///< augment: random crop after padding by this many pixels of stored value 0
    bool flip = false;           ///< augment: random horizontal flip
    int ranks_on_node = 1;       ///< share of the node's memory for cache=auto
};

/// Of the batches that a loader of this set keeps, the one in use and those read ahead; without what it may
/// hold of the set itself (data.cache).
std::int64_t loader_bytes(const DatasetLayout& layout, const LoaderOptions& options);

class Loader {
public:
    /// Batches lie in host memory, or on a `device`, which is kept by reference: copied there ahead of their
    /// use.
    /// @throws Error (bad_usage) on option values out of range or that token data have no use for, (bad_data)
    /// when labels are wanted and y is [n, k].
    Loader(const DatasetLayout& layout, LoaderOptions options, Device* device = nullptr);
    ~Loader();

    /// Goes to (epoch, step); reading starts at once. Steps of an epoch follow each other, then the next
    /// epoch.
    void start(std::int64_t epoch, std::int64_t step);
    /// The next lane of this rank. @throws Error (bad_data) naming file and row for values that are not
    /// finite, tokens out of range, and whatever reading raised.
    const LaneBatch& next();
    /// All of this rank's lanes of the next step, in order; empty where this rank has no lanes. Valid until
    /// the next call of next() or next_step(), on a device for the work that it has been given by then.
    /// Errors as in next().
    std::span<const LaneBatch> next_step();
    /// True once the whole set is held in memory; until then rows also come from the files.
    bool cached() const;

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
