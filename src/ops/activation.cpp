#include "trireme/ops/ops.hpp"

namespace trireme {

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
