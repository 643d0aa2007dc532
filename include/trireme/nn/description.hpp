// A model as text: `layer = ...` lines, read into specifications. Presets are written in the same vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/param/table.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

/// One line: "conv out=32 kernel=3 padding=1 name=stem".
class LayerSpec {
public:
    /// @throws Error (bad_usage) quoting the line when it is no `kind key=value ...`.
    LayerSpec(const std::string& line, int index);

    const std::string& kind() const { return kind_; }
    /// "3.conv", or what name= says: the prefix of the parameters' names.
    const std::string& name() const { return name_; }

    // Options by name; each is looked up once. @throws Error (bad_usage) quoting the line when the value does
    // not parse or is below `least`.
    std::int64_t integer(const std::string& key, std::int64_t fallback, std::int64_t least = 1) const;
    std::int64_t required_integer(const std::string& key) const;
    double real(const std::string& key, double fallback) const;
    bool flag(const std::string& key, bool fallback) const;
    std::string text(const std::string& key, const std::string& fallback) const;
    bool has(const std::string& key) const { return options_.contains(key); }

    /// @throws Error (bad_usage) naming an option outside `known` and the nearest known one.
    void allow(const std::vector<std::string>& known) const;
    /// An error about this line.
    [[noreturn]] void refuse(const std::string& why) const;

private:
    std::string line_, kind_, name_;
    std::map<std::string, std::string> options_;
};

/// What [model] says.
struct ModelDescription {
    std::vector<std::string> layers;     ///< the lines, presets already written out
    std::string loss = "cross_entropy";  ///< cross_entropy, mse, bce
    std::string init = "kaiming";        ///< kaiming, xavier, normal std=0.02, zeros, constant value=0.5
};

struct PresetOptions {
    std::vector<std::int64_t> widths;  ///< mlp: one per hidden layer
    std::int64_t channels = 0;         ///< cnn, resnet: of the first stage (0: the preset's own)
    std::string activation = "relu";
    double dropout = 0;
    bool batchnorm = false;  ///< mlp, cnn

    // gpt, vit
    std::int64_t layers = 6, d_model = 384, heads = 6;
    std::int64_t kv_heads = 0;  ///< 0: as many as heads
    std::int64_t ffn = 0;       ///< hidden features of the feed-forward part; 0: 4 d_model, 8/3 for swiglu
    std::int64_t vocab = 0;     ///< 0: the tokens of the data
    std::int64_t patch = 4;     ///< vit: pixels along the side of a patch
    std::string norm = "layernorm";     ///< layernorm, rmsnorm
    std::string ffn_kind = "gelu";      ///< gelu, swiglu
    std::string positions = "learned";  ///< learned, rotary, none
    bool tied = true;                   ///< gpt: the head shares the embedding's weights
};

/// The layer lines of a preset: mlp, cnn, resnet18, gpt, vit. The last one has out=classes for
/// classification, else out=outputs.
/// @throws Error (bad_usage) naming the presets on another name, or extents that do not fit it.
std::vector<std::string> preset_layers(const std::string& arch, const Shape& sample,
                                       const PresetOptions& options);

/// @throws Error (bad_usage) on anything but the documented forms.
Init init_from(const std::string& text, std::int64_t fan_in, std::int64_t fan_out);

}  // namespace trireme
