// Forecasts against what ranks that are there allocate and send in a training step.
#include <mpi.h>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/counting_communicator.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "support/replica.hpp"
#include "train/assembly.hpp"
#include "train/rehearsal.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

using Settings = std::vector<std::pair<std::string, std::string>>;

Config config_with(const Settings& settings) {
    Config config;
    for (const auto& [key, value] : settings) set_config(config, key, value);
    return config;
}

const Settings gpt = {{"model.layer", "embedding dim=12 name=tokens"},
                      {"model.layer", "positions"},
                      {"model.layer", "residual"},
                      {"model.layer", "layernorm"},
                      {"model.layer", "attention heads=4"},
                      {"model.layer", "end"},
                      {"model.layer", "residual"},
                      {"model.layer", "layernorm"},
                      {"model.layer", "linear out=24"},
                      {"model.layer", "gelu"},
                      {"model.layer", "linear out=12"},
                      {"model.layer", "end"},
                      {"model.layer", "dropout p=0.1"},
                      {"model.layer", "layernorm"},
                      {"model.layer", "linear out=classes tied=tokens bias=false"},
                      {"train.batch", "13"},
                      {"parallel.bucket_mb", "0.002"},
                      {"optim.name", "adamw"}};

DataFacts token_facts() {
    DataFacts data;
    data.train.kind = DataKind::tokens;
    data.train.shards = {{"none.h5", {0, 401}}};
    data.train.sample = data.train.target = Shape{8};
    data.outputs = 19;
    return data;
}

struct Measured {
    std::vector<GroupTraffic> traffic;
    StateBytes state;
    std::int64_t bytes = 0;
};

/// A real step on the ranks that are there, with random tokens.
Measured measure(Session& session, Config config, const DataFacts& data) {
    CountingCommunicator world(session.world());
    Mesh mesh(world, static_cast<int>(config.parallel.tensor), static_cast<int>(config.parallel.pipeline));
    CountingDevice device;
    const Log log(session.rank(), LogLevel::warning);
    Runtime runtime{
        .session = session, .mesh = mesh, .device = device, .log = log, .threads = 1, .stop_requested = {}};
    config.train.lanes = choose_lanes(config, mesh.data().size());
    Assembly parts;
    parts.train_set = data.train;
    build_model(runtime, config, data.outputs, parts);
    build_step(runtime, config, parts);
    parts.model->initialize(parts.runner->ops(), parts.state->arena.weights, 1);
    parts.runner->use(WeightKind::current);
    Measured found{{}, parts.state->bytes(), device.bytes()};

    const Range mine = part_of({0, config.train.lanes}, mesh.data().size(), mesh.data().rank());
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(config.train.batch * 8));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 7 % 19);
    std::vector<LaneBatch> batches;
    for (std::int64_t lane = mine.begin; lane < mine.end; ++lane) {
        LaneBatch batch;
        batch.lane = lane;
        batch.positions = parts.plan.lane(0, lane);
        batch.first_in_batch = batch.positions.begin;
        batch.batch_samples = parts.plan.step(0).size();
        batch.x = batch.y = view_of(tokens.data() + batch.positions.begin * 8, Shape{batch.samples(), 8});
        batches.push_back(batch);
    }
    const auto of = [](Communicator& comm) -> Traffic& {
        return static_cast<CountingCommunicator&>(comm).traffic();
    };
    const std::vector<std::pair<std::string, Communicator*>> groups = {{"data", &mesh.data()},
                                                                       {"pipeline", &mesh.pipeline()},
                                                                       {"tensor", &mesh.tensor()},
                                                                       {"model", &mesh.model()},
                                                                       {"world", &world}};
    // The second step is like all others.
    for (int step = 0; step < 2; ++step) {
        for (const auto& [name, comm] : groups) of(*comm).clear();
        parts.step->run(
            batches,
            {.lr = 1e-3, .updates = step, .attempt = step, .batch_samples = parts.plan.step(0).size()});
    }
    for (const auto& [name, comm] : groups) found.traffic.push_back({name, comm->size(), of(*comm).table()});
    return found;
}

void require_as_forecast(const Settings& more) {
    int argc = 0;
    char** argv = nullptr;
    Session session(argc, argv);
    Settings settings = gpt;
    std::string text;
    for (const auto& [key, value] : more) {
        settings.emplace_back(key, value);
        text += key + "=" + value + " ";
    }
    INFO(text);
    const Config config = config_with(settings);
    const DataFacts data = token_facts();
    const Measured found = measure(session, config, data);

    // The forecast is made on a mesh of one rank.
    MpiCommunicator self(MPI_COMM_SELF, false);
    Mesh alone(self, 1, 1);
    const std::unique_ptr<Device> device = make_device("cpu");
    const Log log(session.rank(), LogLevel::warning);
    Runtime here{
        .session = session, .mesh = alone, .device = *device, .log = log, .threads = 1, .stop_requested = {}};
    const Rehearsal forecast =
        rehearse(here, config, data, mesh_shape(config, session.size()), session.rank());

    CHECK(forecast.memory.state == found.state);
    CHECK(forecast.memory.total() - forecast.memory.input == found.bytes);
    REQUIRE(forecast.traffic.size() == found.traffic.size());
    for (std::size_t g = 0; g < found.traffic.size(); ++g) {
        const GroupTraffic &a = forecast.traffic[g], &b = found.traffic[g];
        INFO(b.group << " of " << b.ranks);
        CHECK(a.group == b.group);
        CHECK(a.ranks == b.ranks);
        for (int v = 0; v < verbs; ++v) {
            const auto at = static_cast<std::size_t>(v);
            INFO(name_of(static_cast<Verb>(v))
                 << ": forecast " << a.calls[at].calls << " calls, " << a.calls[at].bytes << " bytes; found "
                 << b.calls[at].calls << ", " << b.calls[at].bytes);
            CHECK(a.calls[at] == b.calls[at]);
        }
    }
    if (session.size() > 1) {
        std::int64_t calls = 0;
        for (const GroupTraffic& group : found.traffic)
            for (const Calls& of : group.calls) calls += group.ranks > 1 ? of.calls : 0;
        CHECK(calls > 1);
    }
}

}  // namespace

TEST_CASE("memory and traffic of data parallelism are as forecast", "[mpi][plan]") {
    for (const char* zero : {"0", "1", "2", "3"})
        for (const char* wire : {"fp32", "bf16"})
            for (const char* overlap : {"off", "on"}) {
                require_as_forecast({{"parallel.zero", zero},
                                     {"parallel.reduce_dtype", wire},
                                     {"parallel.overlap", overlap}});
                // Several lanes a rank, in 16 bits, with a clipped norm and an average.
                require_as_forecast({{"parallel.zero", zero},
                                     {"parallel.reduce_dtype", wire},
                                     {"parallel.overlap", overlap},
                                     {"train.lane_batch", "2"},
                                     {"train.precision", "bf16"},
                                     {"train.clip_norm", "1"},
                                     {"train.ema", "0.9"}});
            }
    require_as_forecast({{"optim.name", "lamb"}});
    require_as_forecast({{"optim.name", "lamb"}, {"parallel.zero", "1"}});
    require_as_forecast({{"train.reduction", "reproducible"}});
}

TEST_CASE("memory and traffic of split layers and stages are as forecast", "[mpi][plan]") {
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0) return;
    for (const char* tensor : {"1", "2", "4"})
        for (const char* pipeline : {"1", "2", "4"})
            for (const char* sequence : {"false", "true"}) {
                if (ranks % (std::stoi(tensor) * std::stoi(pipeline)) != 0) continue;
                for (const char* schedule : {"1f1b", "gpipe", "interleaved"}) {
                    if (std::string(pipeline) == "1" && std::string(schedule) != "1f1b") continue;
                    for (const char* zero : {"0", "2"})
                        require_as_forecast({{"parallel.tensor", tensor},
                                             {"parallel.pipeline", pipeline},
                                             {"parallel.sequence", sequence},
                                             {"parallel.schedule", schedule},
                                             {"parallel.zero", zero}});
                }
            }
}

TEST_CASE("optimizer state is one part of the ranks' number, up to padding", "[mpi][plan]") {
    int argc = 0;
    char** argv = nullptr;
    Session session(argc, argv);
    MpiCommunicator self(MPI_COMM_SELF, false);
    Mesh alone(self, 1, 1);
    const std::unique_ptr<Device> device = make_device("cpu");
    const Log log(session.rank(), LogLevel::warning);
    Runtime here{
        .session = session, .mesh = alone, .device = *device, .log = log, .threads = 1, .stop_requested = {}};
    Settings settings = gpt;
    const Config whole = config_with(settings);
    settings.emplace_back("parallel.zero", "1");
    const Config sharded = config_with(settings);
    const DataFacts data = token_facts();
    const auto states = [&](const Config& config, int ranks, int rank) {
        return rehearse(here, config, data, mesh_shape(config, ranks), rank).memory.state.states;
    };
    const std::int64_t all = states(whole, 1, 0);
    for (const int ranks : {2, 3, 8, 512}) {
        // A cache line for each rank, column and bucket.
        const std::int64_t padding = 2 * 64 * 12;
        std::int64_t sum = 0;
        for (int rank = 0; rank < ranks; rank += ranks == 512 ? 73 : 1) {
            const std::int64_t here_bytes = states(sharded, ranks, rank);
            CHECK(here_bytes <= all / ranks + padding);
            sum += here_bytes;
        }
        if (ranks < 512) CHECK(sum == all);
    }
}
