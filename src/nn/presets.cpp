// The presets, written in the vocabulary of `layer = ...` lines.
#include <cmath>
#include <string>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/nn/description.hpp"

namespace trireme {
namespace {

using Lines = std::vector<std::string>;

void need_image(const std::string& arch, const Shape& sample, std::int64_t least) {
    if (sample.rank() != 3 || sample[1] < least || sample[2] < least)
        throw usage_error("model.arch=" + arch +
                          " needs samples of shape channels x height x width of at least " +
                          std::to_string(least) + " pixels, but the data have " + sample.text());
}

/// model.activation as a layer line.
std::string activation_line(const PresetOptions& options) {
    return options.activation == "gelu_tanh" ? "gelu form=tanh" : options.activation;
}

std::string number(std::int64_t value) {
    return std::to_string(value);
}

std::string real(double value) {
    return to_text(value);
}

/// Hidden layers fc1, fc2, ... and the output layer.
Lines mlp(const Shape& sample, const PresetOptions& options) {
    Lines lines;
    if (sample.rank() > 1) lines.push_back("flatten");
    int index = 0;
    for (const std::int64_t width : options.widths) {
        const std::string suffix = number(++index);
        lines.push_back("linear out=" + number(width) + " name=fc" + suffix);
        if (options.batchnorm) lines.push_back("batchnorm name=norm" + suffix);
        lines.push_back(activation_line(options));
        if (options.dropout > 0) lines.push_back("dropout p=" + std::to_string(options.dropout));
    }
    lines.push_back("linear out=classes name=head");
    return lines;
}

/// Two convolutions with pooling and one hidden linear layer.
Lines cnn(const Shape& sample, const PresetOptions& options) {
    need_image("cnn", sample, 4);
    const std::int64_t channels = options.channels > 0 ? options.channels : 32;
    Lines lines;
    for (int stage = 1; stage <= 2; ++stage) {
        lines.push_back("conv out=" + number(channels * stage) + " kernel=3 padding=1 name=conv" +
                        number(stage));
        if (options.batchnorm) lines.push_back("batchnorm name=norm" + number(stage));
        lines.push_back(activation_line(options));
        lines.push_back("maxpool kernel=2");
    }
    lines.push_back("flatten");
    lines.push_back("linear out=128 name=fc");
    lines.push_back(activation_line(options));
    if (options.dropout > 0) lines.push_back("dropout p=" + std::to_string(options.dropout));
    lines.push_back("linear out=classes name=head");
    return lines;
}

/// He, Zhang, Ren, Sun: "Deep residual learning for image recognition" (CVPR 2016), table 1, 18 layers.
/// Images below 64 pixels get the 3x3 stem without pooling that is usual for CIFAR.
Lines resnet18(const Shape& sample, const PresetOptions& options) {
    need_image("resnet18", sample, 8);
    const std::int64_t first = options.channels > 0 ? options.channels : 64;
    const bool small = sample[1] < 64 || sample[2] < 64;
    Lines lines;
    lines.push_back("conv out=" + number(first) +
                    (small ? " kernel=3 padding=1" : " kernel=7 stride=2 padding=3") +
                    " bias=false name=stem.conv");
    lines.push_back("batchnorm name=stem.norm");
    lines.push_back("relu");
    if (!small) lines.push_back("maxpool kernel=3 stride=2 padding=1");
    for (int stage = 0; stage < 4; ++stage) {
        const std::int64_t width = first << stage;
        for (int block = 0; block < 2; ++block) {
            const std::string name = "stage" + number(stage + 1) + ".block" + number(block + 1);
            const bool shrink = stage > 0 && block == 0;
            const std::string stride = shrink ? " stride=2" : "";
            lines.push_back("residual");
            lines.push_back("conv out=" + number(width) + " kernel=3 padding=1" + stride +
                            " bias=false name=" + name + ".conv1");
            lines.push_back("batchnorm name=" + name + ".norm1");
            lines.push_back("relu");
            lines.push_back("conv out=" + number(width) + " kernel=3 padding=1 bias=false name=" + name +
                            ".conv2");
            lines.push_back("batchnorm name=" + name + ".norm2");
            if (shrink) {
                lines.push_back("shortcut");
                lines.push_back("conv out=" + number(width) + " kernel=1 stride=2 bias=false name=" + name +
                                ".shortcut.conv");
                lines.push_back("batchnorm name=" + name + ".shortcut.norm");
            }
            lines.push_back("end");
            lines.push_back("relu");
        }
    }
    lines.push_back("globalavgpool");
    lines.push_back("flatten");
    lines.push_back("linear out=classes name=head");
    return lines;
}

/// A pre-norm block (Xiong et al. 2020): attention and feed-forward part, each on a residual stream.
void add_block(Lines& lines, const PresetOptions& o, const std::string& name, bool causal) {
    // Radford et al. 2019: weights that write into the stream start smaller, so that it does not grow with
    // depth.
    const std::string std = " std=0.02",
                      out_std = real(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers)));
    const std::string dropout = o.dropout > 0 ? "dropout p=" + real(o.dropout) : "";
    const std::string bias = o.norm == "rmsnorm" ? " bias=false" : "";
    const auto end = [&] {
        if (!dropout.empty()) lines.push_back(dropout);
        lines.push_back("end");
    };
    lines.push_back("residual");
    lines.push_back(o.norm + " name=" + name + ".norm1");
    lines.push_back("attention heads=" + number(o.heads) +
                    " kv_heads=" + number(o.kv_heads > 0 ? o.kv_heads : o.heads) +
                    (causal ? "" : " causal=false") + (o.positions == "rotary" ? " rope=true" : "") + bias +
                    std + " out_std=" + out_std + " name=" + name + ".attention");
    end();
    lines.push_back("residual");
    lines.push_back(o.norm + " name=" + name + ".norm2");
    if (o.ffn_kind == "swiglu") {
        const std::int64_t hidden = o.ffn > 0 ? o.ffn : (8 * o.d_model / 3 + 63) / 64 * 64;
        lines.push_back("swiglu hidden=" + number(hidden) + std + " out_std=" + out_std + " name=" + name +
                        ".ffn");
    } else {
        const std::int64_t hidden = o.ffn > 0 ? o.ffn : 4 * o.d_model;
        lines.push_back("linear out=" + number(hidden) + bias + std + " name=" + name + ".ffn1");
        lines.push_back("gelu");
        lines.push_back("linear out=" + number(o.d_model) + bias + " std=" + out_std + " name=" + name +
                        ".ffn2");
    }
    end();
}

/// A decoder of tokens, as Radford et al. 2019 (learned positions, LayerNorm, GELU) or Touvron et al. 2023
/// (rotary, RMSNorm, SwiGLU).
Lines gpt(const Shape& sample, const PresetOptions& o) {
    if (sample.rank() != 1)
        throw usage_error("model.arch=gpt needs tokens (data.kind=tokens), but the data have samples of " +
                          sample.text());
    const std::string vocab = o.vocab > 0 ? number(o.vocab) : "classes";
    Lines lines;
    lines.push_back("embedding dim=" + number(o.d_model) + " vocab=" + vocab + " name=embed");
    if (o.positions == "learned") lines.push_back("positions name=positions");
    if (o.dropout > 0) lines.push_back("dropout p=" + real(o.dropout));
    for (std::int64_t block = 1; block <= o.layers; ++block)
        add_block(lines, o, "block" + number(block), true);
    lines.push_back(o.norm + " name=norm");
    lines.push_back("linear out=" + vocab + " bias=false name=head" +
                    std::string(o.tied ? " tied=embed" : " std=0.02"));
    return lines;
}

/// Patches of an image as a sequence (Dosovitskiy et al. 2021), with the mean of the positions in place of a
/// class token (Beyer et al. 2022).
Lines vit(const Shape& sample, const PresetOptions& o) {
    need_image("vit", sample, 1);
    if (sample[1] % o.patch != 0 || sample[2] % o.patch != 0)
        throw usage_error("model.patch=" + number(o.patch) + " must divide the images, which are " +
                          sample.text());
    Lines lines;
    lines.push_back("conv out=" + number(o.d_model) + " kernel=" + number(o.patch) +
                    " stride=" + number(o.patch) + " name=patch");
    lines.push_back("tokens");
    if (o.positions == "learned") lines.push_back("positions name=positions");
    if (o.dropout > 0) lines.push_back("dropout p=" + real(o.dropout));
    for (std::int64_t block = 1; block <= o.layers; ++block)
        add_block(lines, o, "block" + number(block), false);
    lines.push_back(o.norm + " name=norm");
    lines.push_back("tokenmean");
    lines.push_back("linear out=classes name=head");
    return lines;
}

}  // namespace

std::vector<std::string> preset_layers(const std::string& arch, const Shape& sample,
                                       const PresetOptions& options) {
    if (arch == "mlp") return mlp(sample, options);
    if (arch == "cnn") return cnn(sample, options);
    if (arch == "resnet18") return resnet18(sample, options);
    if (arch == "gpt") return gpt(sample, options);
    if (arch == "vit") return vit(sample, options);
    throw usage_error("model.arch=" + arch + ": expected mlp, cnn, resnet18, gpt or vit");
}

}  // namespace trireme
