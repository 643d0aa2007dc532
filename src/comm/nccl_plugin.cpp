// NCCL comes from the same plugin as the CUDA device.
#include "comm/nccl_group.hpp"
#include "tensor/cuda_plugin.hpp"

namespace trireme {

NcclId make_nccl_id() {
    const auto make = reinterpret_cast<void (*)(NcclId&)>(cuda_plugin_entry("trireme_nccl_id"));
    NcclId id{};
    make(id);
    return id;
}

bool has_nccl() {
    return cuda_plugin_has("trireme_nccl_id");
}

std::unique_ptr<NcclGroup> make_nccl_group(Device& device, const NcclId& id, int rank, int size) {
    const auto make = reinterpret_cast<NcclGroup* (*)(Device&, const NcclId&, int, int)>(
        cuda_plugin_entry("trireme_nccl_group"));
    return std::unique_ptr<NcclGroup>(make(device, id, rank, size));
}

}  // namespace trireme
