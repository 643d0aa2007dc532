// The time of a step on ranks that are not there: an estimate from a few rates.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "app/options.hpp"
#include "app/plan_tables.hpp"

namespace trireme::app {

/// Of one rank while all work.
struct Rates {
    std::optional<double> flops;    ///< a second, of products
    std::optional<double> copy;     ///< bytes read plus written, a second
    std::optional<double> network;  ///< bytes that a rank sends to others, a second
    double latency = 0;             ///< seconds of a message
};
/// --rates, then --gflops, --copy-rate, --network, --latency. Collective. @throws Error (bad_usage, all
/// ranks) naming option or file.
Rates rates_from(Communicator& world, const CommandLine& line);
/// Fills in what was not given and can be measured here. Collective.
Rates measured(Runtime& runtime, const Config& config, Rates rates);

/// Seconds of a step of the slowest place.
struct StepTime {
    int ranks = 1;
    std::int64_t batch = 0;
    double products = 0, others = 0, updates = 0, waiting = 0;
    std::optional<double> network{};  ///< absent: no rate is known
    double total() const { return products + others + updates + waiting + network.value_or(0); }
    double samples_per_second() const { return total() > 0 ? static_cast<double>(batch) / total() : 0; }
};

struct Forecast {
    Rates rates;
    StepTime step;
    std::vector<StepTime> strong, weak;  ///< by ranks: the same batch; the same samples for each data rank
};
Forecast forecast_of(Runtime& runtime, const Config& config, const DataFacts& data, const MeshShape& mesh,
                     const std::vector<Place>& places, const Rates& rates);
std::string forecast_text(const Forecast& forecast);
nlohmann::ordered_json forecast_json(const Forecast& forecast);

}  // namespace trireme::app
