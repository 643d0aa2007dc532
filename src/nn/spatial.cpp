// Layers without parameters that change the extents of images: pooling, global average, flatten.
#include "nn/layers.hpp"
#include "nn/window.hpp"

namespace trireme {
namespace {

class PoolLayer final : public Layer {
public:
    explicit PoolLayer(const LayerSpec& spec)
        : spec_(spec), kind_(spec.kind() == "maxpool" ? Pool::max : Pool::average) {
        spec.allow({"kernel", "stride", "padding"});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        window_ = window_from(spec_, in, 0);
        if (2 * window_.padding_h > window_.kernel_h || 2 * window_.padding_w > window_.kernel_w)
            spec_.refuse("padding may be at most half the kernel");
        const Shape out{window_.c, window_.out_h(), window_.out_w()};
        const int tick = plan.workspace.next_tick();
        if (kind_ == Pool::max)
            index_ = plan.workspace.add(out.count(), 0, DType::i32, forward_at(tick), backward_at(tick));
        return out;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->pool_forward(kind_, of(lane), x, y, lane.training ? index(lane, y.shape) : View{});
    }
    void backward(LaneContext& lane, View, View y, View dy, View dx) const override {
        if (dx) lane.ops->pool_backward(kind_, of(lane), dy, index(lane, y.shape), dx);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        const std::int64_t x = window_.c * window_.h * window_.w;
        const std::int64_t y = window_.c * window_.out_h() * window_.out_w();
        const int indices = kind_ == Pool::max ? 1 : 0;
        work.move(x, samples, 1);
        work.move(y, samples, 1 + indices);
        if (first) return;
        work.move(y, samples, 1 + indices);
        work.move(x, samples, 1);
    }

private:
    Window of(const LaneContext& lane) const {
        Window window = window_;
        window.n = lane.samples;
        return window;
    }
    View index(const LaneContext& lane, const Shape& shape) const {
        return index_ < 0 ? View{} : lane.tensor(index_, shape);
    }

    LayerSpec spec_;
    Pool kind_;
    Window window_;
    TensorId index_ = -1;  // [N, C, H', W'] i32, max pooling
};

/// [C, H, W] to [C, 1, 1], or [T, C] to [C]: the average over a whole image or sequence.
class GlobalAveragePool final : public Layer {
public:
    GlobalAveragePool(const LayerSpec& spec, bool sequence) : spec_(spec), sequence_(sequence) {
        spec.allow({});
    }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        if (in.rank() != (sequence_ ? 2 : 3))
            spec_.refuse(std::string("needs ") + (sequence_ ? "a sequence of vectors" : "images") +
                         ", but gets " + in.text());
        const int tick = plan.workspace.next_tick();
        // Positions of a sequence lie as the pixels of an image one pixel wide; all of them on every rank.
        positions_ = split_positions(plan, in);
        const std::int64_t channels = sequence_ ? in[1] : in[0], w = sequence_ ? 1 : in[2];
        const std::int64_t h = positions_ > 0 ? positions_ : sequence_ ? in[0] : in[1];
        forward_.plan(plan, in, h * w, channels, forward_at(tick), false);
        backward_.plan(plan, in, h * w, channels, backward_at(tick), false);
        window_ = {.c = channels, .h = h, .w = w, .out = channels, .kernel_h = h, .kernel_w = w};
        return sequence_ ? Shape{channels} : Shape{channels, 1, 1};
    }
    void forward(LaneContext& lane, View x, View y) const override {
        lane.ops->pool_forward(Pool::average, of(lane), positions_ > 0 ? forward_.whole(lane, x) : x, y, {});
    }
    void backward(LaneContext& lane, View, View, View dy, View dx) const override {
        if (!dx) return;
        const View whole = positions_ > 0 ? backward_.room(lane, dx.dtype) : dx;
        lane.ops->pool_backward(Pool::average, of(lane), dy, {}, whole);
        if (positions_ > 0) take_positions(lane, whole, positions_, window_.c, dx);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(window_.c * window_.h * window_.w, samples, first ? 1 : 2);
    }

private:
    Window of(const LaneContext& lane) const {
        Window window = window_;
        window.n = lane.samples;
        return window;
    }
    LayerSpec spec_;
    bool sequence_;
    std::int64_t positions_ = 0;  // of the whole sequence, where it is split over the tensor group
    GroupEdge forward_, backward_;
    Window window_;
};

/// Any sample to one dimension. Images turn from channels-last memory to C, H, W order: the order that
/// weights of a following linear layer have in other programs.
class Flatten final : public Layer {
public:
    explicit Flatten(const LayerSpec& spec) { spec.allow({}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        const int tick = plan.workspace.next_tick();
        in_ = in;
        positions_ = split_positions(plan, in);
        if (positions_ == 0) return {in.count()};
        gather_.plan(plan, in, positions_, in[1], forward_at(tick), false);
        return {positions_ * in[1]};
    }
    void forward(LaneContext& lane, View x, View y) const override {
        if (positions_ > 0)
            lane.ops->copy(gather_.whole(lane, x), rows(y, in_[1]));
        else if (reorders())
            lane.ops->to_channels_first(x, {y.data, y.dtype, x.shape});
        else
            lane.ops->copy(x, y);
    }
    void backward(LaneContext& lane, View x, View, View dy, View dx) const override {
        if (!dx) return;
        if (positions_ > 0)
            take_positions(lane, dy, positions_, in_[1], dx);
        else if (reorders())
            lane.ops->to_channels_last({dy.data, dy.dtype, x.shape}, dx);
        else
            lane.ops->copy(dy, dx);
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(in_.count(), samples, first ? 2 : 4);
    }

private:
    bool reorders() const { return in_.rank() == 3 && in_[0] > 1 && in_[1] * in_[2] > 1; }
    Shape in_;
    std::int64_t positions_ = 0;  // of the whole sequence, where it is split over the tensor group
    GroupEdge gather_;
};

/// Images to sequences: the pixels, row by row, become positions, the channels their features. Channels-last
/// memory is that already.
class ImageTokens final : public Layer {
public:
    explicit ImageTokens(const LayerSpec& spec) : spec_(spec) { spec.allow({}); }

    Shape plan(ModelPlan& plan, const Shape& in, bool) override {
        if (in.rank() != 3) spec_.refuse("needs images, but gets " + in.text());
        const int tick = plan.workspace.next_tick();
        elements_ = in.count();
        width_ = in[0];
        const Shape out = begin_sequence(spec_, plan, {in[1] * in[2], in[0]});
        positions_ = split_positions(plan, out);
        gather_.plan(plan, out, in[1] * in[2], in[0], backward_at(tick), false);
        return out;
    }
    void forward(LaneContext& lane, View x, View y) const override {
        if (positions_ > 0)
            take_positions(lane, x, positions_, width_, y);
        else
            lane.ops->copy(x, y);
    }
    void backward(LaneContext& lane, View, View, View dy, View dx) const override {
        if (dx) lane.ops->copy(gather_.whole(lane, dy), rows(dx, width_));
    }
    void add_work(Work& work, std::int64_t samples, bool first) const override {
        work.move(elements_, samples, first ? 2 : 4);
    }

private:
    LayerSpec spec_;
    std::int64_t elements_ = 0, width_ = 0;
    std::int64_t positions_ = 0;  // of the whole sequence, where it is split over the tensor group
    GroupEdge gather_;
};

}  // namespace

std::unique_ptr<Layer> make_image_tokens(const LayerSpec& spec) {
    return std::make_unique<ImageTokens>(spec);
}
std::unique_ptr<Layer> make_token_mean(const LayerSpec& spec) {
    return std::make_unique<GlobalAveragePool>(spec, true);
}
std::unique_ptr<Layer> make_pool(const LayerSpec& spec) {
    return std::make_unique<PoolLayer>(spec);
}
std::unique_ptr<Layer> make_global_average_pool(const LayerSpec& spec) {
    return std::make_unique<GlobalAveragePool>(spec, false);
}
std::unique_ptr<Layer> make_flatten(const LayerSpec& spec) {
    return std::make_unique<Flatten>(spec);
}

}  // namespace trireme
