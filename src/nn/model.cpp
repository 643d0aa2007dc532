#include "trireme/nn/model.hpp"

#include <cmath>

#include "nn/layers.hpp"
#include "nn/sequence.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::unique_ptr<Sequence> layers_from(const ModelDescription& description) {
    std::vector<LayerSpec> specs;
    for (const std::string& line : description.layers)
        specs.emplace_back(line, static_cast<int>(specs.size()));
    std::size_t next = 0;
    std::unique_ptr<Sequence> layers = make_sequence(specs, next);
    if (next < specs.size()) specs[next].refuse("there is no residual block open here");
    return layers;
}

/// He et al. 2015: normal with variance 2/fan_in. Glorot and Bengio 2010: uniform within
/// √(6/(fan_in+fan_out)).
void fill_initial(Ops& ops, const Init& init, const RandomStream& stream, std::int64_t first, View weight) {
    switch (init.kind) {
        case InitKind::kaiming:
            ops.fill_normal(stream, first, 0, std::sqrt(2.0F / static_cast<float>(init.fan_in)), weight);
            break;
        case InitKind::xavier: {
            const float bound = std::sqrt(6.0F / static_cast<float>(init.fan_in + init.fan_out));
            ops.fill_uniform(stream, first, -bound, bound, weight);
            break;
        }
        case InitKind::normal:
            ops.fill_normal(stream, first, 0, init.value, weight);
            break;
        case InitKind::constant:
            ops.fill(weight, init.value);
            break;
    }
}

}  // namespace

LossKind loss_from(const std::string& name) {
    if (name == "cross_entropy") return LossKind::cross_entropy;
    if (name == "mse") return LossKind::mse;
    if (name == "bce") return LossKind::bce;
    throw usage_error("model.loss=" + name + ": expected cross_entropy, mse or bce");
}

std::vector<double> layer_costs(const ModelDescription& description, const Shape& sample,
                                std::int64_t outputs, const ModelOptions& options) {
    // Of an ordinary core: only the proportions matter.
    constexpr double flops_per_second = 1e11, bytes_per_second = 1e10;
    const std::unique_ptr<Sequence> layers = layers_from(description);
    ParameterTable table;
    WorkspacePlan workspace;
    ModelPlan plan{.table = table,
                   .workspace = workspace,
                   .init = description.init,
                   .outputs = outputs,
                   .compute = options.compute,
                   .group = options.group,
                   .sequence = options.sequence && options.group.size() > 1};
    layers->plan(plan, sample, true);
    std::vector<double> costs;
    for (int i = 0; i < layers->size(); ++i) {
        const Work work = layers->work_of(i, options.max_samples);
        costs.push_back(work.flops() / flops_per_second + work.bytes / bytes_per_second);
    }
    return costs;
}

Model::Model(const ModelDescription& description, const LossOptions& loss, const Shape& sample,
             std::int64_t outputs, const ModelOptions& options)
    : loss_(loss),
      compute_(options.compute),
      group_(options.group),
      chunks_(options.chunks),
      input_(sample),
      layers_(layers_from(description)) {
    if (chunks_.empty())
        chunks_.push_back({0, layers_->size()});
    else
        layers_->keep_only(chunks_);

    const bool classes = loss_.kind == LossKind::cross_entropy;
    ModelPlan plan{.table = table_,
                   .workspace = workspace_,
                   .init = description.init,
                   .outputs = outputs,
                   .compute = compute_,
                   .group = group_,
                   .sequence = options.sequence && group_.size() > 1,
                   .split_output = classes};
    output_ = layers_->plan(plan, input_, true);
    check_sequence(plan);
    random_ = plan.random;
    classes_ = {0, output_[output_.rank() - 1]};
    if (plan.split_output) {
        output_[output_.rank() - 1] = plan.split_width;
        classes_ = group_.part(plan.split_width);
    }
    // More outputs than classes in these data are legal: another part of the data may have the rest.
    const bool sequence = classes && output_.rank() == 2 && input_.rank() == 1;
    if ((output_.rank() != 1 && !sequence) ||
        (classes ? this->outputs() < outputs : this->outputs() != outputs))
        throw usage_error("the model's output has the shape " + output_.text() + ", but " +
                          (classes ? "the data have " + std::to_string(outputs) + " classes"
                                   : "the targets have " + std::to_string(outputs) + " values each"));
    plan_ends(plan);
    table_.lay_out();
    workspace_.lay_out(options.max_samples);
}

/// Split positions come to an end within the model: the loss takes whole samples.
void Model::check_sequence(const ModelPlan& plan) const {
    if (plan.sequence && plan.positions == 0)
        throw usage_error("parallel.sequence=true: the model has no sequences (no `embedding`, no `tokens`)");
    if (plan.sequence && output_.rank() == 2 && !plan.split_output)
        throw usage_error(
            "parallel.sequence=true: expected `linear` as the last layer of a model of sequences");
}

bool Model::is_first(int chunk) const {
    return layers_of(chunk).begin == 0;
}
bool Model::is_last(int chunk) const {
    return layers_of(chunk).end == layers_->size();
}

/// The tensors before the first and after the last layer.
void Model::plan_ends(ModelPlan& plan) {
    const int tick = workspace_.next_tick();
    const std::int64_t rows = output_.count() / outputs(), here = rows * classes_.size();
    const bool tokens = !plan.embeddings.empty();
    workspace_.take_memory(is_first(0));
    if (compute_ != DType::f32 && !tokens)
        input_tensor_ = workspace_.add(input_.count(), 0, compute_, forward_at(0), backward_at(0));
    workspace_.take_memory(is_last(chunks() - 1));
    output_tensor_ = workspace_.add(here, 0, DType::f32, forward_at(0), backward_at(0));
    d_output_tensor_ = workspace_.add(here, 0, compute_, forward_at(tick), backward_at(0));
    if (!plan.split_output) return;
    const auto of_rows = [&](std::int64_t columns, DType type) {
        return workspace_.add(rows * columns, 0, type, forward_at(tick), forward_at(tick));
    };
    maximum_ = of_rows(1, DType::f32);
    row_sums_ = of_rows(3, DType::f32);
    winner_ = of_rows(1, DType::i32);
    gather_ = std::make_unique<ColumnGather>();
    gather_->plan(plan, rows, outputs(), tick);
    whole_ = workspace_.add(output_.count(), 0, DType::f32, forward_at(tick), forward_at(tick));
}

Model::~Model() = default;

View Model::inlet(const LaneContext& lane, int chunk) const {
    return layers_->activation(lane, layers_of(chunk).begin - 1);
}
View Model::inlet_gradient(const LaneContext& lane, int chunk) const {
    return layers_->gradient(lane, layers_of(chunk).begin - 1);
}
View Model::outlet(const LaneContext& lane, int chunk) const {
    return layers_->activation(lane, layers_of(chunk).end - 1);
}
View Model::outlet_gradient(const LaneContext& lane, int chunk) const {
    return layers_->gradient(lane, layers_of(chunk).end - 1);
}

View Model::forward(LaneContext& lane, View x, int chunk) const {
    View input = is_first(chunk) ? input_of(lane, x) : inlet(lane, chunk);
    if (is_first(chunk) && input.data != x.data) lane.ops->copy(x, input);
    const View output = is_last(chunk) ? output_of(lane) : outlet(lane, chunk);
    layers_->forward(layers_of(chunk), lane, input, output);
    return output;
}

void Model::backward(LaneContext& lane, View x, int chunk) const {
    const bool first = is_first(chunk), last = is_last(chunk);
    layers_->backward(layers_of(chunk), lane, first ? input_of(lane, x) : inlet(lane, chunk),
                      last ? output_of(lane) : outlet(lane, chunk),
                      last ? lane.tensor(d_output_tensor_, local_output(lane)) : outlet_gradient(lane, chunk),
                      first ? View{} : inlet_gradient(lane, chunk));
}

void Model::visit(const LaneContext& lane, int chunk, bool backward) const {
    layers_->visit(layers_of(chunk), lane, backward);
}

View Model::output_of(const LaneContext& lane) const {
    return lane.tensor(output_tensor_, local_output(lane));
}

Shape Model::local_output(const LaneContext& lane) const {
    Shape shape = output_;
    shape[output_.rank() - 1] = classes_.size();
    return shape.batched(lane.samples);
}

View Model::whole(LaneContext& lane, View output) const {
    if (!gather_) return output;
    const View mine = gather_->mine(lane, output.dtype);
    lane.ops->copy(output, {mine.data, mine.dtype, output.shape});
    const View all = lane.tensor(whole_, output_.batched(lane.samples));
    gather_->forward(lane, mine, rows(all, outputs()));
    return all;
}

View Model::input_of(const LaneContext& lane, View x) const {
    return input_tensor_ < 0 ? x : lane.tensor(input_tensor_, x.shape);
}

void Model::loss(LaneContext& lane, View y, const LossSums& sums) const {
    run_loss(lane, y, {}, 1, sums);
}

void Model::start_backward(LaneContext& lane, View y, float gradient_scale, const LossSums& sums) const {
    run_loss(lane, y, lane.tensor(d_output_tensor_, local_output(lane)), gradient_scale, sums);
}

void Model::run_loss(LaneContext& lane, View y, View d_output, float gradient_scale,
                     const LossSums& sums) const {
    if (gather_) return run_split_loss(lane, y, d_output, gradient_scale, sums);
    const View output = output_of(lane);
    if (loss_.kind == LossKind::cross_entropy) {
        lane.ops->cross_entropy({.logits = rows(output, outputs()),
                                 .labels = {y.data, y.dtype, {y.count()}},
                                 .label_smoothing = loss_.label_smoothing,
                                 .ignore_index = loss_.ignore_index,
                                 .gradient_scale = gradient_scale,
                                 .d_logits = d_output ? rows(d_output, outputs()) : View{},
                                 .sums = sums});
        return;
    }
    const Regression args{.prediction = output,
                          .target = {y.data, y.dtype, output.shape},
                          .gradient_scale = gradient_scale,
                          .d_prediction = d_output,
                          .sums = sums};
    if (loss_.kind == LossKind::mse)
        lane.ops->mean_squared_error(args);
    else
        lane.ops->binary_cross_entropy(args);
}

/// The logits are never gathered: three reductions of a few numbers for each row instead.
void Model::run_split_loss(LaneContext& lane, View y, View d_output, float gradient_scale,
                           const LossSums& sums) const {
    const View output = output_of(lane);
    const std::int64_t count = y.count();
    const SplitCrossEntropy args{.logits = {output.data, output.dtype, {count, classes_.size()}},
                                 .labels = {y.data, y.dtype, {count}},
                                 .first = classes_.begin,
                                 .classes = outputs(),
                                 .label_smoothing = loss_.label_smoothing,
                                 .ignore_index = loss_.ignore_index,
                                 .gradient_scale = gradient_scale,
                                 .d_logits = {d_output.data, d_output.dtype, {count, classes_.size()}},
                                 .sums = sums,
                                 .maximum = lane.tensor(maximum_, {count}),
                                 .row_sums = lane.tensor(row_sums_, {count, 3}),
                                 .winner = lane.tensor(winner_, {count})};
    Communicator& comm = *group_.comm;
    lane.ops->split_cross_entropy_maximum(args);
    comm.all_reduce(args.maximum, Reduce::max);
    lane.ops->split_cross_entropy_sums(args);
    comm.all_reduce(args.row_sums, Reduce::sum);
    comm.all_reduce(args.winner, Reduce::min);
    lane.ops->split_cross_entropy_finish(args);
}

void Model::initialize(Ops& ops, const Column& weights, std::uint64_t seed) const {
    for (ParameterId id = 0; id < table_.count(); ++id) {
        const Parameter& parameter = table_[id];
        const RandomStream stream(seed, Purpose::init, static_cast<std::uint64_t>(id));
        const Range held = weights.held(parameter.place);
        const std::int64_t origin = parameter.place.begin;
        for (const Strip& strip : strips_of(parameter, {held.begin - origin, held.end - origin}))
            fill_initial(ops, parameter.init, stream, strip.whole,
                         weights.range({origin + strip.local, origin + strip.local + strip.count}));
    }
}

Work Model::work(std::int64_t samples) const {
    Work work;
    work.compute = compute_;
    layers_->add_work(work, samples, true);
    return work;
}

}  // namespace trireme
