// Steps that are alike, recorded once and given to the device as a whole from then on: what the host would
// say to it kernel by kernel it says at once.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "trireme/data/loader.hpp"
#include "trireme/tensor/device.hpp"

namespace trireme {

class StepGraphs {
public:
    explicit StepGraphs(Device& device) : device_(device) {}

    /// Has the device do what `work` gives to it, for these lanes and this scale of the loss. `work` says the
    /// same for equal ones and is called twice for each: to do it, which brings about whatever has to be
    /// allocated, and to be recorded.
    void run(std::span<const LaneBatch> lanes, double scale, const std::function<void()>& work);

private:
    struct Recorded {
        std::vector<std::int64_t> key;
        std::unique_ptr<DeviceGraph> graph;  ///< absent: seen once
    };
    void make_key(std::span<const LaneBatch> lanes, double scale);

    Device& device_;
    std::vector<std::int64_t> key_;  ///< kept so that a steady step allocates nothing
    std::list<Recorded> recorded_;   ///< the last one used stands first
};

}  // namespace trireme
