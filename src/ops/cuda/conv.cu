// Convolution as products over patches. With K = KH·KW·C/groups and a patch for each output position,
//   forward: y[rows, O] = patches[rows, K] · kernel[O, K]ᵀ
//   data:    patches of dx = dy · kernel, and dx[p] = the sum over all places of p in the patches
//   weights: d_kernel = dyᵀ · patches
// group by group. Within a patch the channels are innermost, as they lie in memory, so that patches are made
// and kernels reordered with neighbouring accesses. Samples are taken a few at a time, so that the patches
// stay within a bound; 1x1 kernels need none.
#include <algorithm>

#include "ops/cuda/cuda_ops.hpp"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/launch.hpp"

namespace trireme::cuda {
namespace {

/// Elements of the patches that are in memory at a time.
constexpr std::int64_t most_patches = std::int64_t{1} << 26;

/// A window with the extents that follow from it.
struct Extents {
    Window w;
    std::int64_t out_h, out_w, group_c, group_out, patch;

    explicit Extents(const Window& window)
        : w(window),
          out_h(window.out_h()),
          out_w(window.out_w()),
          group_c(window.c / window.groups),
          group_out(window.out / window.groups),
          patch(window.kernel_h * window.kernel_w * group_c) {}
    std::int64_t image() const { return w.c * w.h * w.w; }
    std::int64_t positions() const { return out_h * out_w; }
    std::int64_t kernel() const { return w.out * patch; }
    /// Output positions are input positions, one patch element for each channel.
    bool pointwise() const {
        return w.kernel_h == 1 && w.kernel_w == 1 && w.stride_h == 1 && w.stride_w == 1 && w.padding_h == 0 &&
               w.padding_w == 0;
    }
    /// Samples that are taken at a time.
    std::int64_t samples() const {
        return pointwise() ? w.n
                           : std::clamp<std::int64_t>(
                                 most_patches / std::max<std::int64_t>(1, positions() * patch * w.groups), 1,
                                 std::max<std::int64_t>(1, w.n));
    }
};

/// patches[group, row, (u, v, c)] = x at that place, 0 outside. x and patches have one type.
template <class T>
__global__ void __launch_bounds__(threads)
    gather_kernel(Extents e, std::int64_t samples, const T* x, T* patches) {
    const std::int64_t rows = samples * e.out_h * e.out_w, count = e.w.groups * rows * e.patch;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const std::int64_t c = i % e.group_c, tap = i / e.group_c % (e.w.kernel_h * e.w.kernel_w);
        const std::int64_t row = i / e.patch % rows, group = i / e.patch / rows;
        const std::int64_t u = tap / e.w.kernel_w, v = tap % e.w.kernel_w;
        const std::int64_t h = row / e.out_w % e.out_h * e.w.stride_h - e.w.padding_h + u * e.w.dilation_h;
        const std::int64_t w = row % e.out_w * e.w.stride_w - e.w.padding_w + v * e.w.dilation_w;
        const std::int64_t n = row / (e.out_h * e.out_w);
        const bool inside = h >= 0 && h < e.w.h && w >= 0 && w < e.w.w;
        patches[i] = inside ? x[((n * e.w.h + h) * e.w.w + w) * e.w.c + group * e.group_c + c] : T{};
    }
}

/// dx[p] = Σ of the patch elements that stand for p, in the order of the kernel.
__global__ void __launch_bounds__(threads)
    collect_kernel(Extents e, std::int64_t samples, const float* patches, void* dx, DType type) {
    const std::int64_t count = samples * e.w.h * e.w.w * e.w.c, rows = samples * e.out_h * e.out_w;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const std::int64_t channel = i % e.w.c, w = i / e.w.c % e.w.w, h = i / e.w.c / e.w.w % e.w.h,
                           n = i / e.w.c / e.w.w / e.w.h;
        const std::int64_t group = channel / e.group_c, c = channel % e.group_c;
        float sum = 0;
        for (std::int64_t u = 0; u < e.w.kernel_h; ++u) {
            const std::int64_t top = h + e.w.padding_h - u * e.w.dilation_h;
            if (top < 0 || top % e.w.stride_h != 0 || top / e.w.stride_h >= e.out_h) continue;
            for (std::int64_t v = 0; v < e.w.kernel_w; ++v) {
                const std::int64_t left = w + e.w.padding_w - v * e.w.dilation_w;
                if (left < 0 || left % e.w.stride_w != 0 || left / e.w.stride_w >= e.out_w) continue;
                const std::int64_t row = (n * e.out_h + top / e.w.stride_h) * e.out_w + left / e.w.stride_w;
                sum += patches[(group * rows + row) * e.patch + (u * e.w.kernel_w + v) * e.group_c + c];
            }
        }
        store(dx, type, i, sum);
    }
}

/// kernel[o, c, tap] to [o, tap, c].
template <class T>
__global__ void __launch_bounds__(threads) reorder_kernel(Extents e, const T* kernel, T* reordered) {
    const std::int64_t taps = e.w.kernel_h * e.w.kernel_w, count = e.w.out * e.patch;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const std::int64_t c = i % e.group_c, tap = i / e.group_c % taps, o = i / e.patch;
        reordered[i] = kernel[o * e.patch + c * taps + tap];
    }
}

/// And back, adding where that is asked for.
__global__ void __launch_bounds__(threads)
    restore_kernel(Extents e, const float* reordered, float* kernel, bool accumulate) {
    const std::int64_t taps = e.w.kernel_h * e.w.kernel_w, count = e.w.out * e.patch;
    for (std::int64_t i = global_thread(); i < count; i += all_threads()) {
        const std::int64_t tap = i % taps, c = i / taps % e.group_c, o = i / e.patch;
        kernel[i] = reordered[o * e.patch + tap * e.group_c + c] + (accumulate ? kernel[i] : 0.0f);
    }
}

/// Reads the bits of elements of 2 or 4 bytes, whatever they stand for.
template <class Run>
void by_width(DType type, const Run& run) {
    if (type == DType::f32)
        run(std::uint32_t{});
    else
        run(std::uint16_t{});
}

Grid grid_of(const CudaDevice& device, std::int64_t count) {
    return covering(count, threads, 64 * device.multiprocessors());
}

/// The patches of `samples` samples: x itself, or made in `scratch`.
const void* patches_of(const CudaDevice& device, Scratch& scratch, const Extents& e, std::int64_t samples,
                       const void* x, DType type) {
    if (e.pointwise() && e.w.groups == 1) return x;
    const std::int64_t count = samples * e.positions() * e.patch * e.w.groups;
    void* patches = scratch.reserve(static_cast<std::size_t>(count) * size_of(type));
    by_width(type, [&](auto bits) {
        using T = decltype(bits);
        launch(device.stream(), grid_of(device, count), gather_kernel<T>, e, samples,
               static_cast<const T*>(x), static_cast<T*>(patches));
    });
    return patches;
}

/// The kernels in the order of patches: themselves, or made in `scratch`.
const void* kernels_of(const CudaDevice& device, Scratch& scratch, const Extents& e, Real kernel) {
    if (e.w.kernel_h * e.w.kernel_w == 1 || e.group_c == 1) return kernel.data;
    void* reordered = scratch.reserve(static_cast<std::size_t>(e.kernel()) * size_of(kernel.type));
    by_width(kernel.type, [&](auto bits) {
        using T = decltype(bits);
        launch(device.stream(), grid_of(device, e.kernel()), reorder_kernel<T>, e,
               static_cast<const T*>(kernel.data), static_cast<T*>(reordered));
    });
    return reordered;
}

Extents checked(const Window& w) {
    if (w.groups < 1 || w.c % w.groups != 0 || w.out % w.groups != 0 ||
        (w.n > 0 && (w.out_h() < 1 || w.out_w() < 1)))
        throw refusal("convolution", std::to_string(w.c) + " to " + std::to_string(w.out) + " channels in " +
                                         std::to_string(w.groups) + " groups over " + std::to_string(w.h) +
                                         "x" + std::to_string(w.w) + " with a kernel of " +
                                         std::to_string(w.kernel_h) + "x" + std::to_string(w.kernel_w));
    return Extents(w);
}

/// body(first sample, how many) over the batch.
template <class Body>
void for_samples(const Extents& e, const Body& body) {
    for (std::int64_t first = 0; first < e.w.n; first += e.samples())
        body(first, std::min(e.samples(), e.w.n - first));
}

}  // namespace

// y[n, o, i, j] = act(Σ_{c, u, v} x[n, c, i·s - p + u·d, j·s - p + v·d] · k[o, c, u, v] + b[o])
void CudaOps::conv_forward(const Window& window, View x, View kernel, View bias, Activation activation,
                           View y) {
    const Extents e = checked(window);
    const std::int64_t outputs = e.w.n * e.positions() * e.w.out;
    const Real from = real(x, e.w.n * e.image(), "convolution"),
               weights = real(kernel, e.kernel(), "convolution kernel"), to = real(y, outputs, "convolution");
    const float* offset = optional_floats(bias, e.w.out, "convolution bias");
    require_product_types("convolution", x.dtype, kernel.dtype, y.dtype);
    if (!derivative_from_output(activation))
        throw refusal("convolution", std::string(name_of(activation)) + " is not an epilogue");
    if (outputs == 0) return;
    const bool wide = y.dtype == DType::f32;
    const bool rounds_again =
        offset != nullptr || activation == Activation::tanh || activation == Activation::sigmoid;
    const void* kernels = kernels_of(device_, kernel_scratch_, e, weights);
    for_samples(e, [&](std::int64_t first, std::int64_t samples) {
        const std::int64_t rows = samples * e.positions(), count = rows * e.w.out;
        const Real result{to.at(first * e.positions() * e.w.out), to.type};
        const Real sums =
            wide || !rounds_again ? result : Real{wide_scratch_.reserve_of<float>(count), DType::f32};
        const bool fused = wide && offset != nullptr && e.w.groups == 1;
        if (e.patch > 0)
            gemm_.run({.m = rows,
                       .n = e.group_out,
                       .k = e.patch,
                       .lda = e.patch,
                       .ldb = e.patch,
                       .ldc = e.w.out,
                       .transpose_b = true,
                       .bias = fused,
                       .operands = from.type,
                       .result = sums.type,
                       .batches = e.w.groups,
                       .stride_a = rows * e.patch,
                       .stride_b = e.group_out * e.patch,
                       .stride_c = e.group_out},
                      patches_of(device_, patch_scratch_, e, samples, from.at(first * e.image()), from.type),
                      kernels, sums.data, offset);
        const float* missing = fused ? nullptr : offset;
        if (missing != nullptr || activation != Activation::none || sums.data != result.data)
            finish_product(sums, missing, activation, count, e.w.out, result);
    });
}

// dx[n, c, ·] = Σ_{o, u, v} dy[n, o, ·] · k[o, c, u, v]
void CudaOps::conv_backward_data(const Window& window, View dy, View kernel, View dx) {
    const Extents e = checked(window);
    const Real from = real(dy, e.w.n * e.positions() * e.w.out, "convolution backward"),
               weights = real(kernel, e.kernel(), "convolution kernel"),
               to = real(dx, e.w.n * e.image(), "convolution backward");
    require_product_types("convolution backward", dy.dtype, kernel.dtype, dx.dtype);
    if (dx.count() == 0) return;
    if (dy.count() == 0) return fill(dx, 0);
    const void* kernels = kernels_of(device_, kernel_scratch_, e, weights);
    const bool direct = e.pointwise() && e.w.groups == 1;
    for_samples(e, [&](std::int64_t first, std::int64_t samples) {
        const std::int64_t rows = samples * e.positions();
        const Real result{to.at(first * e.image()), to.type};
        const Real patches =
            direct ? result : Real{patch_scratch_.reserve_of<float>(rows * e.patch * e.w.groups), DType::f32};
        gemm_.run({.m = rows,
                   .n = e.patch,
                   .k = e.group_out,
                   .lda = e.w.out,
                   .ldb = e.patch,
                   .ldc = e.patch,
                   .operands = from.type,
                   .result = patches.type,
                   .batches = e.w.groups,
                   .stride_a = e.group_out,
                   .stride_b = e.group_out * e.patch,
                   .stride_c = rows * e.patch},
                  from.at(first * e.positions() * e.w.out), kernels, patches.data);
        if (!direct)
            launch(device_.stream(), grid_of(device_, samples * e.image()), collect_kernel, e, samples,
                   static_cast<const float*>(patches.data), result.data, result.type);
    });
}

// dk[o, c, u, v] (+)= Σ_{n, i, j} dy[n, o, i, j] · x[n, c, i·s - p + u·d, j·s - p + v·d]
void CudaOps::conv_backward_weights(const Window& window, View x, View dy, View d_kernel, bool accumulate) {
    const Extents e = checked(window);
    const std::int64_t outputs = e.w.n * e.positions() * e.w.out;
    const Real from = real(x, e.w.n * e.image(), "convolution backward"),
               gradient = real(dy, outputs, "convolution backward");
    float* sums = floats(d_kernel, e.kernel(), "convolution kernel");
    require_product_types("convolution backward", x.dtype, dy.dtype, DType::f32);
    if (outputs == 0) {
        if (!accumulate) zero(sums, e.kernel());
        return;
    }
    if (e.kernel() == 0) return;
    const bool in_order = e.w.kernel_h * e.w.kernel_w == 1 || e.group_c == 1;
    float* results = in_order ? sums : kernel_scratch_.reserve_of<float>(e.kernel());
    for_samples(e, [&](std::int64_t first, std::int64_t samples) {
        const std::int64_t rows = samples * e.positions();
        gemm_.run({.m = e.group_out,
                   .n = e.patch,
                   .k = rows,
                   .lda = e.w.out,
                   .ldb = e.patch,
                   .ldc = e.patch,
                   .transpose_a = true,
                   .accumulate = first > 0 || (in_order && accumulate),
                   .operands = from.type,
                   .result = DType::f32,
                   .batches = e.w.groups,
                   .stride_a = e.group_out,
                   .stride_b = rows * e.patch,
                   .stride_c = e.group_out * e.patch},
                  gradient.at(first * e.positions() * e.w.out),
                  patches_of(device_, patch_scratch_, e, samples, from.at(first * e.image()), from.type),
                  results);
    });
    if (!in_order)
        launch(device_.stream(), grid_of(device_, e.kernel()), restore_kernel, e,
               static_cast<const float*>(results), sums, accumulate);
}

}  // namespace trireme::cuda
