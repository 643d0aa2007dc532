// plan: memory, traffic and step time of a training on ranks that are not there.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/commands.hpp"
#include "app/plan_forecast.hpp"
#include "app/plan_tables.hpp"
#include "app/text.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::app {
namespace {

int run(Runtime& runtime, const CommandLine& line, const Config& config) {
    check_config(config);
    Communicator& world = runtime.mesh.world();
    const std::int64_t smallest = config.parallel.tensor * config.parallel.pipeline;
    const MeshShape mesh = mesh_shape(
        config, ranks_option(line.option("ranks"), std::max<std::int64_t>(world.size(), smallest)));
    const Rates given = rates_from(world, line);
    const DataFacts data = look_at_data(world, config);
    const std::vector<Place> places = places_of(runtime, config, data, mesh);
    const Rehearsal& any = places.front().rehearsal;
    if (any.lanes < mesh.data() || any.batch < mesh.data())
        runtime.log.warning(std::to_string(mesh.data() - std::min<std::int64_t>(any.lanes, any.batch)) +
                            " of " + std::to_string(mesh.data()) +
                            " data-parallel ranks would be idle: train.lanes=" + std::to_string(any.lanes) +
                            ", train.batch=" + std::to_string(any.batch));
    const Rates rates = measured(runtime, config, given);
    const Forecast forecast = forecast_of(runtime, config, data, mesh, places, rates);
    if (world.rank() != 0) return 0;
    if (!line.has("json")) {
        print(mesh_text(mesh, any) + memory_table(places) + traffic_table(places) + forecast_text(forecast));
        return 0;
    }
    nlohmann::ordered_json object = {{"kind", "plan"},
                                     {"ranks", mesh.ranks},
                                     {"data", mesh.data()},
                                     {"pipeline", mesh.pipeline},
                                     {"tensor", mesh.tensor},
                                     {"batch", any.batch},
                                     {"lanes", any.lanes},
                                     {"parameters", any.all_parameters},
                                     {"places", places_json(places)}};
    object["forecast"] = forecast_json(forecast);
    print(object.dump() + "\n");
    return 0;
}

}  // namespace

Command plan_command() {
    return {
        .name = "plan",
        .arguments = "run.ini [--ranks=N] [--option=value ...] [--section.key=value ...]",
        .summary = "forecasts memory, traffic and step time for N ranks without them",
        .help =
            "Builds one rank of each kind of the mesh without memory and runs a step without computing: what "
            "it would allocate and send is counted. The time of a step is an estimate from rates: those "
            "given, "
            "or those that `trireme doctor --json` has measured (--rates); what is missing is measured at "
            "once "
            "on this machine, the network's rate only where there are several ranks.",
        .options = {{"ranks", "N", "Ranks to plan for. Default: those that are here."},
                    {"rates", "FILE", "What `trireme doctor --json` has written."},
                    {"gflops", "X", "Products of one rank, in 1e9 floating point operations a second."},
                    {"copy-rate", "X", "Bytes read plus bytes written by a copy of one rank, in GB/s."},
                    {"network", "X", "Bytes that a rank sends to others, in GB/s."},
                    {"latency", "X", "Seconds that each message takes at least, in microseconds."},
                    {"json", "", "Print one JSON object."}},
        .least_arguments = 1,
        .most_arguments = 1,
        .takes_keys = true,
        .reads_ini = true,
        .across_ranks = false,
        .own_mesh = false,
        .run = run,
    };
}

}  // namespace trireme::app
