#include "nn/window.hpp"

#include <optional>
#include <tuple>
#include <utility>

#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

using Pair = std::pair<std::int64_t, std::int64_t>;

Pair pair_from(const LayerSpec& spec, const std::string& key, Pair fallback, std::int64_t least) {
    if (!spec.has(key)) return fallback;
    const std::string text = spec.text(key, "");
    const std::vector<std::string> parts = split(text, 'x');
    const auto first = parts.empty() ? std::nullopt : parse_int(parts.front());
    const auto second = parts.empty() ? std::nullopt : parse_int(parts.back());
    if (parts.size() > 2 || !first || !second || *first < least || *second < least)
        spec.refuse(key + "=" + text + ": expected a whole number of at least " + std::to_string(least) +
                    ", or two as in " + key + "=3x5");
    return {*first, *second};
}

}  // namespace

Window window_from(const LayerSpec& spec, const Shape& in, std::int64_t default_stride) {
    if (in.rank() != 3)
        spec.refuse("needs samples of shape channels x height x width, but gets " + in.text());
    if (!spec.has("kernel")) spec.refuse("`kernel=` is missing");
    Window window{.c = in[0], .h = in[1], .w = in[2], .out = in[0]};
    std::tie(window.kernel_h, window.kernel_w) = pair_from(spec, "kernel", {1, 1}, 1);
    const Pair stride =
        default_stride > 0 ? Pair{default_stride, default_stride} : Pair{window.kernel_h, window.kernel_w};
    std::tie(window.stride_h, window.stride_w) = pair_from(spec, "stride", stride, 1);
    std::tie(window.padding_h, window.padding_w) = pair_from(spec, "padding", {0, 0}, 0);
    std::tie(window.dilation_h, window.dilation_w) = pair_from(spec, "dilation", {1, 1}, 1);
    const std::int64_t reach_h = window.dilation_h * (window.kernel_h - 1) + 1;
    const std::int64_t reach_w = window.dilation_w * (window.kernel_w - 1) + 1;
    if (reach_h > window.h + 2 * window.padding_h || reach_w > window.w + 2 * window.padding_w)
        spec.refuse("a window of " + std::to_string(reach_h) + "x" + std::to_string(reach_w) +
                    " does not fit into samples of " + in.text());
    return window;
}

}  // namespace trireme
