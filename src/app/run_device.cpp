#include "app/run_device.hpp"

#include <algorithm>
#include <vector>

#include "tensor/cuda_plugin.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/comm/device_communicator.hpp"

namespace trireme::app {
namespace {

/// This rank's GPU, or why there is none.
std::unique_ptr<Device> find_gpu(Session& session, std::string& absence) {
    try {
        return make_device("cuda", session.local_rank());
    } catch (const Error& error) {
        absence = error.what();
        return nullptr;
    }
}

/// Of the ranks of this machine: which one has the same GPU and comes first; this one where there is none.
int first_with(Session& session, const Device& gpu) {
    const std::vector<std::string> all = gather_texts(session.local(), gpu.identity());
    return static_cast<int>(std::find(all.begin(), all.end(), gpu.identity()) - all.begin());
}

void refuse_sharing(Session& session, const Device& gpu, int first) {
    if (first == session.local_rank()) return;
    throw usage_error("local ranks " + std::to_string(first) + " and " +
                      std::to_string(session.local_rank()) + " of " + session.host() + " would both use " +
                      gpu.identity() +
                      ": start no more ranks than there are GPUs, let each see another one "
                      "(CUDA_VISIBLE_DEVICES), or set run.share_gpu=true, or run.device=cpu");
}

/// Somebody pays for GPUs, or at least has them.
void warn_of_cpus(Communicator& world, const std::string& absence, const Log& log) {
    const std::vector<std::string> reasons = gather_texts(world, absence);
    const auto first = std::find_if(reasons.begin(), reasons.end(), [](auto& text) { return !text.empty(); });
    std::string reason = *first;  // "run.device=cuda: no NVIDIA driver ..."
    if (const std::size_t colon = reason.find(": "); colon != std::string::npos) reason.erase(0, colon + 2);
    log.warning("run.device=auto: all ranks compute on CPUs, since rank " +
                std::to_string(first - reasons.begin()) + " has no GPU: " + reason);
}

}  // namespace

RunDevice make_run_device(Session& session, const Config& config, const Log& log) {
    Communicator& world = session.world();
    if (config.run.device == "cpu") return {make_device("cpu"), nullptr};
    std::string absence;
    std::unique_ptr<Device> gpu = find_gpu(session, absence);
    if (config.run.device == "cuda")
        agreed_by_all(world, [&] {
            if (!gpu) throw usage_error(absence);
        });
    const int without = all_reduce_value(world, gpu ? 0 : 1);
    if (without > 0) {
        const int expecting = all_reduce_value(world, expects_cuda() ? 1 : 0);
        if (without < world.size() || expecting > 0) warn_of_cpus(world, absence, log);
        return {make_device("cpu"), nullptr};
    }
    const int first = first_with(session, *gpu);
    if (!config.run.share_gpu) agreed_by_all(world, [&] { refuse_sharing(session, *gpu, first); });
    const bool shared = all_reduce_value(world, first != session.local_rank() ? 1 : 0) > 0;
    RunDevice made{std::move(gpu), nullptr, shared};
    made.own_world = make_device_communicator(*made.device, world.duplicate(), shared);
    return made;
}

}  // namespace trireme::app
