#include "app/plan_forecast.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/bench_rates.hpp"
#include "app/text.hpp"
#include "train/experiment.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app {
namespace {

std::optional<double> rate_option(const CommandLine& line, const std::string& name, double unit,
                                  const char* expected) {
    if (!line.has(name)) return std::nullopt;
    const auto value = parse_real(line.option(name));
    if (!value || !std::isfinite(*value) || *value <= 0)
        throw usage_error("--" + name + "=" + line.option(name) + ": expected " + expected);
    return *value * unit;
}

/// The file of `doctor --json`.
void read_rates(const std::string& path, const std::string& text, Rates& rates) {
    const auto file = nlohmann::json::parse(text, nullptr, false);
    if (!file.is_object())
        throw usage_error("--rates=" + path + ": expected the JSON object of `trireme doctor --json`");
    const auto number = [](const nlohmann::json& object, const char* key) -> std::optional<double> {
        if (!object.is_object() || !object.contains(key) || !object[key].is_number()) return std::nullopt;
        const double value = object[key].get<double>();
        return value > 0 && std::isfinite(value) ? std::optional(value) : std::nullopt;
    };
    if (const auto gflops = number(file, "gflops")) rates.flops = *gflops * 1e9;
    if (const auto copy = number(file, "copy_bytes_per_s")) rates.copy = copy;
    // The largest all-reduce says what a rank sends while all do; two ranks alone say it where it is missing.
    if (file.contains("pairs")) {
        rates.network = number(file["pairs"], "median_bytes_per_s");
        if (file["pairs"].is_object() && file["pairs"].contains("slowest"))
            rates.latency = number(file["pairs"]["slowest"], "latency_seconds").value_or(0);
    }
    double largest = 0;
    if (file.contains("all_reduce") && file["all_reduce"].is_array())
        for (const auto& row : file["all_reduce"])
            if (const auto bytes = number(row, "bytes"), bus = number(row, "bus_bytes_per_s");
                bytes && bus && *bytes > largest) {
                largest = *bytes;
                rates.network = bus;
            }
    if (!rates.flops && !rates.copy && !rates.network)
        throw usage_error("--rates=" + path +
                          ": expected gflops, copy_bytes_per_s, all_reduce or pairs as `trireme doctor "
                          "--json` writes them");
}

/// What one rank does between the updates, the network apart.
StepTime of_place(const Place& place, const MeshShape& mesh, const Rates& rates) {
    const Rehearsal& r = place.rehearsal;
    const auto lanes = static_cast<double>(r.my_lanes);
    StepTime time{.ranks = mesh.ranks, .batch = r.batch};
    time.products = lanes * r.work.flops() / *rates.flops;
    time.others = lanes * r.work.bytes / *rates.copy;
    time.updates = r.update_bytes / *rates.copy;
    if (mesh.pipeline > 1 && r.bubble < 1)
        time.waiting = (time.products + time.others) * r.bubble / (1 - r.bubble);
    double bytes = 0, messages = 0;
    for (const GroupTraffic& group : r.traffic) {
        if (group.ranks == 1) continue;
        for (int v = 0; v < verbs; ++v) {
            const Calls& calls = group.calls[static_cast<std::size_t>(v)];
            bytes += sent_bytes(static_cast<Verb>(v), calls.bytes, group.ranks);
            // A collective has at least a round for each doubling of its ranks; a message is one round.
            const bool message = static_cast<Verb>(v) == Verb::send || static_cast<Verb>(v) == Verb::receive;
            messages +=
                static_cast<double>(calls.calls) * (message ? 0.5 : std::ceil(std::log2(group.ranks)));
        }
    }
    if (mesh.ranks == 1)
        time.network = 0;
    else if (rates.network)
        time.network = bytes / *rates.network + messages * rates.latency;
    return time;
}

StepTime slowest(const std::vector<Place>& places, const MeshShape& mesh, const Rates& rates) {
    StepTime longest;
    for (const Place& place : places)
        if (const StepTime time = of_place(place, mesh, rates); time.total() >= longest.total())
            longest = time;
    return longest;
}

std::string time_text(double seconds) {
    return seconds < 0.01 ? fixed(1e6 * seconds, 1) + " us" : fixed(1e3 * seconds, 2) + " ms";
}

std::string scaling_text(const std::string& head, const std::vector<StepTime>& row) {
    Table table(">>>>>");
    table.add({"ranks", "batch", "step", "samples/s", "efficiency"});
    const StepTime& first = row.front();
    for (const StepTime& time : row) {
        const bool known = time.network.has_value();
        const double ideal = first.samples_per_second() * time.ranks / first.ranks;
        table.add({std::to_string(time.ranks), grouped(time.batch), known ? time_text(time.total()) : "?",
                   known ? grouped(static_cast<std::int64_t>(time.samples_per_second())) : "?",
                   known ? percent(time.samples_per_second() / ideal) : "?"});
    }
    return head + "\n" + table.text();
}

nlohmann::ordered_json json_of(const StepTime& time) {
    nlohmann::ordered_json object = {{"ranks", time.ranks},         {"batch", time.batch},
                                     {"products_s", time.products}, {"others_s", time.others},
                                     {"updates_s", time.updates},   {"waiting_s", time.waiting}};
    object["network_s"] = time.network ? nlohmann::ordered_json(*time.network) : nullptr;
    object["step_s"] = time.network ? nlohmann::ordered_json(time.total()) : nullptr;
    object["samples_per_s"] = time.network ? nlohmann::ordered_json(time.samples_per_second()) : nullptr;
    return object;
}

}  // namespace

Rates rates_from(Communicator& world, const CommandLine& line) {
    Rates rates;
    if (line.has("rates")) {
        const std::string path = line.option("rates");
        std::string text;
        agreed_by_one(world, [&] {
            std::ifstream file(path, std::ios::binary);
            std::ostringstream content;
            if (file.is_open()) content << file.rdbuf();
            if (!file.is_open() || file.bad()) throw usage_error("--rates=" + path + ": cannot be read");
            text = content.str();
        });
        read_rates(path, broadcast_text(world, text), rates);
    }
    const auto take = [&](std::optional<double>& rate, const std::string& name, double unit) {
        if (const auto given = rate_option(line, name, unit, "a positive number")) rate = given;
    };
    take(rates.flops, "gflops", 1e9);
    take(rates.copy, "copy-rate", 1e9);
    take(rates.network, "network", 1e9);
    rates.latency = rate_option(line, "latency", 1e-6, "a positive number").value_or(rates.latency);
    return rates;
}

Rates measured(Runtime& runtime, const Config& config, Rates rates) {
    Communicator& world = runtime.mesh.world();
    const std::unique_ptr<Ops> ops = make_ops(runtime.device, runtime.threads);
    if (!rates.flops) {
        const Work::Gemm square{.m = 512, .n = 512, .k = 512, .transpose_a = false, .transpose_b = false};
        rates.flops = square.flops() / product_seconds(world, runtime, *ops, square, compute_type(config));
    }
    if (!rates.copy) rates.copy = copy_rate(runtime, *ops);
    if (!rates.network && world.size() > 1) {
        constexpr std::int64_t elements = 1 << 20;
        rates.network = sent_bytes(Verb::all_reduce, 4 * elements, world.size()) /
                        reduce_seconds(world, runtime, elements);
        rates.latency = reduce_seconds(world, runtime, 1) / std::ceil(std::log2(world.size()));
    }
    return rates;
}

Forecast forecast_of(Runtime& runtime, const Config& config, const DataFacts& data, const MeshShape& mesh,
                     const std::vector<Place>& places, const Rates& rates) {
    Forecast forecast{rates, slowest(places, mesh, rates), {}, {}};
    const Rehearsal& any = places.front().rehearsal;
    const int replica = mesh.tensor * mesh.pipeline;
    const std::int64_t samples = std::max<std::int64_t>(1, any.batch / mesh.data());
    for (int replicas = 1;; replicas = std::min(2 * replicas, mesh.data())) {
        const MeshShape part{replicas * replica, mesh.tensor, mesh.pipeline};
        Config scaled = config;
        forecast.strong.push_back(slowest(places_of(runtime, scaled, data, part), part, rates));
        scaled.train.batch = samples * replicas;
        // The lanes of a data rank stay as they are.
        scaled.train.lanes = std::max<std::int64_t>(1, any.my_lanes) * replicas;
        forecast.weak.push_back(slowest(places_of(runtime, scaled, data, part), part, rates));
        if (replicas == mesh.data()) break;
    }
    return forecast;
}

std::string forecast_text(const Forecast& forecast) {
    const StepTime& step = forecast.step;
    const Rates& rates = forecast.rates;
    std::string text = "step time, an estimate from " + fixed(*rates.flops / 1e9, 1) +
                       " GFLOP/s, copies at " + fixed(*rates.copy / 1e9, 2) + " GB/s" +
                       (rates.network ? ", network at " + fixed(*rates.network / 1e9, 2) + " GB/s and " +
                                            fixed(1e6 * rates.latency, 1) + " us a message"
                                      : "") +
                       "\n";
    Table table("<>>");
    const auto add = [&](const std::string& what, double seconds) {
        table.add({what, time_text(seconds), step.network ? percent(seconds / step.total()) : ""});
    };
    add("products", step.products);
    add("other layers", step.others);
    add("optimizer", step.updates);
    if (step.waiting > 0) add("waiting for other stages", step.waiting);
    if (step.network) {
        add("network, where nothing hides it", *step.network);
        add("step", step.total());
    }
    text += table.text();
    if (!step.network)
        text +=
            "  without a rate of the network no step time: give --rates=FILE or --network=GB/s, or start "
            "plan on several ranks\n";
    return text + scaling_text("strong scaling: the batch as configured", forecast.strong) +
           scaling_text("weak scaling: samples of each data-parallel rank as here", forecast.weak);
}

nlohmann::ordered_json forecast_json(const Forecast& forecast) {
    nlohmann::ordered_json object;
    object["gflops"] = *forecast.rates.flops / 1e9;
    object["copy_bytes_per_s"] = *forecast.rates.copy;
    object["network_bytes_per_s"] =
        forecast.rates.network ? nlohmann::ordered_json(*forecast.rates.network) : nullptr;
    object["latency_seconds"] = forecast.rates.latency;
    object["step"] = json_of(forecast.step);
    for (const auto& [name, row] :
         {std::pair{"strong", &forecast.strong}, std::pair{"weak", &forecast.weak}}) {
        object[name] = nlohmann::ordered_json::array();
        for (const StepTime& time : *row) object[name].push_back(json_of(time));
    }
    return object;
}

}  // namespace trireme::app
