// The layers that specifications name, one factory each.
#pragma once

#include "nn/tensor_parallel.hpp"
#include "trireme/nn/layer.hpp"

namespace trireme {

std::unique_ptr<Layer> make_linear(const LayerSpec& spec);
std::unique_ptr<Layer> make_conv(const LayerSpec& spec);
std::unique_ptr<Layer> make_batchnorm(const LayerSpec& spec);
std::unique_ptr<Layer> make_layernorm(const LayerSpec& spec);
std::unique_ptr<Layer> make_activation(const LayerSpec& spec);
std::unique_ptr<Layer> make_dropout(const LayerSpec& spec);
std::unique_ptr<Layer> make_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_global_average_pool(const LayerSpec& spec);
std::unique_ptr<Layer> make_flatten(const LayerSpec& spec);
std::unique_ptr<Layer> make_rmsnorm(const LayerSpec& spec);
std::unique_ptr<Layer> make_embedding(const LayerSpec& spec);
std::unique_ptr<Layer> make_positions(const LayerSpec& spec);
std::unique_ptr<Layer> make_attention(const LayerSpec& spec);
std::unique_ptr<Layer> make_swiglu(const LayerSpec& spec);
std::unique_ptr<Layer> make_image_tokens(const LayerSpec& spec);
std::unique_ptr<Layer> make_token_mean(const LayerSpec& spec);

/// What an activation layer applies; none for every other layer.
Activation activation_of(const Layer& layer);

}  // namespace trireme
