#include "train/torch_names.hpp"

#include <algorithm>
#include <map>

#include "trireme/base/error.hpp"
#include "trireme/nn/description.hpp"

namespace trireme {
namespace {

/// "q.weight" of an attention is "q_proj.weight".
std::string within_layer(const std::string& kind, const std::string& rest) {
    constexpr const char* products[] = {"q.", "k.", "v.", "out.", "gate.", "up.", "down."};
    if (kind != "attention" && kind != "swiglu") return rest;
    for (const std::string product : products)
        if (rest.starts_with(product))
            return product.substr(0, product.size() - 1) + "_proj" + rest.substr(product.size() - 1);
    return rest;
}

class Names {
public:
    explicit Names(const std::vector<std::string>& layers) {
        for (std::size_t i = 0; i < layers.size(); ++i) specs_.emplace_back(layers[i], static_cast<int>(i));
    }

    std::string of(const std::string& parameter) const {
        // The longest name that fits: a layer may be called like another one with more behind it.
        std::size_t best = specs_.size();
        for (std::size_t i = 0; i < specs_.size(); ++i)
            if (parameter.starts_with(specs_[i].name() + ".") &&
                (best == specs_.size() || specs_[i].name().size() > specs_[best].name().size()))
                best = i;
        if (best == specs_.size()) return parameter;
        const LayerSpec& spec = specs_[best];
        const std::string number = std::to_string(best);
        return (spec.name() == number + "." + spec.kind() ? number : spec.name()) + "." +
               within_layer(spec.kind(), parameter.substr(spec.name().size() + 1));
    }

private:
    std::vector<LayerSpec> specs_;
};

}  // namespace

std::vector<std::string> torch_names(const std::vector<std::string>& layers,
                                     const std::vector<std::string>& parameters) {
    const Names names(layers);
    std::map<std::string, std::string> taken;
    std::vector<std::string> all;
    for (const std::string& parameter : parameters) {
        all.push_back(names.of(parameter));
        const auto [other, is_new] = taken.emplace(all.back(), parameter);
        if (!is_new)
            throw usage_error("parameters " + other->second + " and " + parameter + " would both be called " +
                              all.back() + " in a safetensors file: give their layers other names");
    }
    return all;
}

}  // namespace trireme
