#include "trireme/ops/ops.hpp"

#include "ops/backends.hpp"
#include "trireme/base/error.hpp"

namespace trireme {

std::unique_ptr<Ops> make_ops(Device& device, int threads) {
    const std::string name = device.name();
    if (name == "cpu") return make_cpu_ops(device, threads);
    if (name == "cuda") return make_cuda_ops(device, threads);
    if (name == "meta") return make_meta_ops();
    throw failure("no operations for the device \"" + name + "\"");
}

std::string_view name_of(Activation activation) {
    switch (activation) {
        case Activation::none:
            return "none";
        case Activation::relu:
            return "relu";
        case Activation::gelu:
            return "gelu";
        case Activation::gelu_tanh:
            return "gelu_tanh";
        case Activation::silu:
            return "silu";
        case Activation::tanh:
            return "tanh";
        case Activation::sigmoid:
            return "sigmoid";
    }
    return "?";
}

}  // namespace trireme
