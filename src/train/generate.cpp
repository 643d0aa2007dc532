#include "trireme/train/generate.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "train/experiment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/train/step.hpp"

namespace trireme {
namespace {

void check_prompt(const GenerateOptions& options, const Model& model, const std::string& checkpoint) {
    if (model.output().rank() != 2)
        throw Error(Status::bad_data,
                    checkpoint + ": expected a model of tokens (model.arch=gpt), found one of samples",
                    Scope::all_ranks);
    if (options.prompt.empty()) throw usage_error("--prompt=: expected at least one character");
    for (const std::int32_t token : options.prompt)
        if (token < 0 || token >= model.outputs())
            throw Error(Status::bad_data,
                        "--prompt: token " + std::to_string(token) + " is not in the vocabulary of " +
                            checkpoint + ", which has " + std::to_string(model.outputs()) + " tokens",
                        Scope::all_ranks);
}

}  // namespace

std::int32_t draw_token(std::vector<float> logits, double temperature, std::int64_t top_k, double uniform) {
    std::vector<std::int32_t> order(logits.size());
    std::iota(order.begin(), order.end(), 0);
    const auto size = static_cast<std::int64_t>(order.size());
    const std::int64_t kept = temperature <= 0 ? 1 : top_k > 0 ? std::min(top_k, size) : size;
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](std::int32_t a, std::int32_t b) {
        const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
        return x != y ? x > y : a < b;
    });
    order.resize(static_cast<std::size_t>(kept));
    if (kept == 1) return order.front();
    const auto logit = [&](std::int32_t token) {
        return static_cast<double>(logits[static_cast<std::size_t>(token)]);
    };
    const double top = logit(order.front());
    std::vector<double> sums;
    double sum = 0;
    for (const std::int32_t token : order)
        sums.push_back(sum += std::exp((logit(token) - top) / temperature));
    const auto found = std::upper_bound(sums.begin(), sums.end(), uniform * sum);
    return found == sums.end() ? order.back() : order[static_cast<std::size_t>(found - sums.begin())];
}

void generate(Runtime& runtime, const Config& config, const std::string& checkpoint,
              const GenerateOptions& options, const std::function<void(std::int32_t)>& emit) {
    Communicator& world = runtime.mesh.world();
    const CheckpointMeta meta = read_checkpoint_meta(world, checkpoint);
    const DType compute = compute_type(config);
    const Model model(model_description(config, meta.sample), loss_options(config), meta.sample, meta.outputs,
                      {.compute = compute});
    check_prompt(options, model, checkpoint);
    Arena arena(runtime.device, model.table(), {.compute = compute});
    load_checkpoint(world, checkpoint, model.table(), arena,
                    config.train.eval_ema ? Part::average : Part::weights);
    WholeWeights weights(arena);
    LaneRunner runner(runtime.device, model, weights, 1, runtime.threads);
    runner.use(WeightKind::current);

    // A window of the last tokens, computed anew for each: what follows the last one is not looked at.
    const std::int64_t context = model.input().count(), vocabulary = model.outputs();
    std::vector<std::int32_t> text = options.prompt, window(static_cast<std::size_t>(context));
    std::vector<float> logits(static_cast<std::size_t>(vocabulary));
    const Buffer tokens(runtime.device, window.size() * sizeof(std::int32_t));
    const RandomStream stream(options.seed, Purpose::generate, 0);
    for (std::int64_t i = 0; i < options.tokens; ++i) {
        const auto length = std::min<std::int64_t>(context, static_cast<std::int64_t>(text.size()));
        std::fill(std::copy(text.end() - length, text.end(), window.begin()), window.end(), 0);
        LaneBatch batch;
        batch.positions = {0, 1};
        batch.batch_samples = 1;
        runtime.device.copy_from_host(tokens.data(), window.data(), tokens.bytes());
        batch.x = view_of(tokens.as<std::int32_t>(), Shape{1, context});
        LaneContext lane = runner.context(0, batch);
        lane.training = false;
        const View output = model.forward(lane, batch.x);  // [1, context, vocabulary]
        runtime.device.copy_to_host(logits.data(), output.as<float>() + (length - 1) * vocabulary,
                                    logits.size() * sizeof(float));
        const double uniform = static_cast<double>(unit_interval(stream.word(static_cast<std::uint64_t>(i))));
        text.push_back(draw_token(logits, options.temperature, options.top_k, uniform));
        emit(text.back());
    }
}

}  // namespace trireme
