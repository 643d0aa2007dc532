#include "trireme/parallel/training_state.hpp"

#include "parallel/windows.hpp"
#include "parallel/wire.hpp"

namespace trireme {
namespace {

ShardingOptions sharding_options(int rank, int ranks, const TrainingStateOptions& options) {
    return {.stage = options.stage,
            .rank = rank,
            .ranks = ranks,
            .bucket_bytes = options.bucket_bytes,
            .statistics_apart = options.reducer.wire != DType::f32};
}

ArenaOptions with_pieces(ArenaOptions options, const Sharding& sharding) {
    options.pieces = sharding.pieces();
    return options;
}

std::int64_t bytes_of(std::int64_t elements, DType type) {
    return elements * static_cast<std::int64_t>(size_of(type));
}

std::int64_t size_of_all(const std::vector<Range>& pieces) {
    std::int64_t size = 0;
    for (const Range piece : pieces) size += piece.size();
    return size;
}

}  // namespace

StateBytes state_bytes(const ParameterTable& table, int rank, int ranks,
                       const TrainingStateOptions& options) {
    const Sharding sharding(table, sharding_options(rank, ranks, options));
    const ArenaPieces& pieces = sharding.pieces();
    const DType compute = options.arena.compute;
    StateBytes sum;
    sum.weights = bytes_of(size_of_all(pieces.weights), DType::f32);
    if (compute != DType::f32) sum.low = bytes_of(size_of_all(pieces.weights), compute);
    sum.gradients = bytes_of(size_of_all(pieces.gradients), DType::f32);
    sum.states = static_cast<std::int64_t>(options.arena.state_names.size()) *
                 bytes_of(size_of_all(pieces.states), DType::f32);
    if (options.arena.average) sum.average = bytes_of(size_of_all(pieces.updated), DType::f32);

    const int windows = window_count(sharding, options.overlap);
    const auto window_bytes = [&](Wanted wanted, DType type) {
        return bytes_of(windows * WindowLayout(table, sharding, wanted).largest_unit(), type);
    };
    if (sharding.shards_gradients()) sum.gradient_windows = window_bytes(Wanted::all, DType::f32);
    if (sharding.shards_weights())
        sum.weight_windows = compute == DType::f32 ? window_bytes(Wanted::all, DType::f32)
                                                   : window_bytes(Wanted::operands, compute) +
                                                         window_bytes(Wanted::others, DType::f32);
    if (ranks > 1) sum.buffers = wire_bytes(options.reducer.wire, sharding);
    if (options.eval_average) sum.buffers += bytes_of(elements_put_aside(sharding), DType::f32);
    return sum;
}

TrainingState::TrainingState(Communicator& data, Device& device, const ParameterTable& table,
                             const TrainingStateOptions& options)
    : sharding(table, sharding_options(data.rank(), data.size(), options)),
      arena(device, table, with_pieces(options.arena, sharding)),
      queue(data, device, options.overlap),
      weights(make_lane_weights(queue, device, table, sharding, arena, options.eval_average)),
      reducer(make_reducer(queue, device, table, sharding, arena, options.reducer)) {}

StateBytes TrainingState::bytes() const {
    StateBytes sum;
    const auto bytes = [](const Column& column) { return static_cast<std::int64_t>(column.bytes()); };
    sum.weights = bytes(arena.weights);
    if (arena.low) sum.low = bytes(*arena.low);
    sum.gradients = bytes(arena.gradients);
    for (const Column& state : arena.states) sum.states += bytes(state);
    if (arena.average) sum.average = bytes(*arena.average);
    sum.weight_windows = weights->window_bytes();
    sum.gradient_windows = reducer->window_bytes();
    sum.buffers = weights->buffer_bytes() + reducer->buffer_bytes();
    return sum;
}

}  // namespace trireme
