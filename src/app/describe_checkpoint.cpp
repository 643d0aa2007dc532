#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/describe.hpp"
#include "app/text.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/io/hdf5.hpp"
#include "trireme/train/config.hpp"

namespace trireme::app {
namespace {

using Json = nlohmann::ordered_json;

struct SavedParameter {
    std::string name;
    Shape shape;
};

/// What the file holds beside the meta data.
struct Inventory {
    std::vector<SavedParameter> parameters;
    std::string program, created;
    std::int64_t format_version = 0;
    double bytes = 0;

    std::int64_t count() const {
        std::int64_t sum = 0;
        for (const SavedParameter& parameter : parameters) sum += parameter.shape.count();
        return sum;
    }
};

/// "2.relu" before "10.linear": leading numbers by value.
bool by_layer(const SavedParameter& a, const SavedParameter& b) {
    const auto number = [](const std::string& name) { return parse_int(name.substr(0, name.find('.'))); };
    const auto x = number(a.name), y = number(b.name);
    if (x && y && *x != *y) return *x < *y;
    return a.name < b.name;
}

Inventory read_inventory(const std::string& path) {
    Inventory inventory;
    const io::File file(path, io::Access::read);
    for (const std::string& name : file.children("/model"))
        inventory.parameters.push_back({name, file.open("/model/" + name).info().shape});
    std::stable_sort(inventory.parameters.begin(), inventory.parameters.end(), by_layer);
    inventory.program = file.text_attribute("/", "trireme").value_or("?");
    inventory.created = file.text_attribute("/", "created").value_or("?");
    inventory.format_version = file.int_attribute("/", "version").value_or(0);
    inventory.bytes = static_cast<double>(std::filesystem::file_size(path));
    return inventory;
}

std::string extents(const Shape& shape) {
    return shape.rank() == 0 ? "scalar" : shape.text();
}

std::string text_of(const std::string& path, const Inventory& inventory, const CheckpointMeta& meta) {
    const Position& at = meta.position;
    std::string text = "checkpoint " + path + "\n";
    Table facts("<<");
    facts.add({"written", inventory.created + " by trireme " + inventory.program + ", format " +
                              std::to_string(inventory.format_version) + ", " + bytes_text(inventory.bytes)});
    facts.add({"model", extents(meta.sample) + " -> " + std::to_string(meta.outputs) + ", " +
                            std::to_string(inventory.parameters.size()) + " parameters, " +
                            grouped(inventory.count()) + " elements"});
    facts.add(
        {"optimizer",
         meta.optimizer + (meta.state_names.empty() ? "" : " (" + joined(meta.state_names, ", ") + ")")});
    facts.add({"position", "epoch " + std::to_string(at.epoch) + ", step " +
                               std::to_string(at.step_in_epoch) + " of it; " + std::to_string(at.updates) +
                               " updates, " + std::to_string(at.skipped) + " skipped, " +
                               grouped(at.samples) + " samples"});
    if (at.has_best) facts.add({"best", to_text(at.best) + " at update " + std::to_string(at.best_step)});
    facts.add({"inputs", meta.input_shift.empty()
                             ? "as they are"
                             : "shifted and scaled, " + std::to_string(meta.input_shift.size()) +
                                   (meta.input_shift.size() == 1 ? " pair" : " channels")});
    text += facts.text();

    Table table("<<>");
    table.add({"parameter", "shape", "elements"});
    for (const SavedParameter& parameter : inventory.parameters)
        table.add({parameter.name, extents(parameter.shape), grouped(parameter.shape.count())});
    return text + "\n" + table.text() + "\n`trireme info " + path + " --config` prints its configuration\n";
}

std::string json_of(const std::string& path, const Inventory& inventory, const CheckpointMeta& meta) {
    const Position& at = meta.position;
    Json object = {
        {"kind", "checkpoint"}, {"path", path}, {"bytes", static_cast<std::int64_t>(inventory.bytes)}};
    object["trireme"] = inventory.program;
    object["created"] = inventory.created;
    object["version"] = inventory.format_version;
    object["sample"] = std::vector<std::int64_t>(meta.sample.begin(), meta.sample.end());
    object["outputs"] = meta.outputs;
    object["optimizer"] = meta.optimizer;
    object["states"] = meta.state_names;
    object["average"] = meta.has_average;
    object["position"] = {{"epoch", at.epoch},         {"step_in_epoch", at.step_in_epoch},
                          {"updates", at.updates},     {"skipped", at.skipped},
                          {"samples", at.samples},     {"scale", at.scaler.scale},
                          {"growth", at.scaler.growth}};
    object["position"]["best"] = at.has_best ? Json(at.best) : Json(nullptr);
    object["position"]["best_step"] = at.best_step;
    object["normalization"] = {{"shift", meta.input_shift}, {"scale", meta.input_scale}};
    object["elements"] = inventory.count();
    object["parameters"] = Json::array();
    for (const SavedParameter& parameter : inventory.parameters)
        object["parameters"].push_back(
            {{"name", parameter.name},
             {"shape", std::vector<std::int64_t>(parameter.shape.begin(), parameter.shape.end())}});
    Json config = Json::object();
    for (const auto& [key, value] : parse_ini(meta.config, path)) {
        if (key == "model.layer")
            config[key].push_back(value);
        else
            config[key] = value;
    }
    object["config"] = std::move(config);
    return object.dump() + "\n";
}

}  // namespace

std::string describe_checkpoint(Runtime& runtime, const std::string& path, bool json) {
    Communicator& world = runtime.session.world();
    const CheckpointMeta meta = read_checkpoint_meta(world, path);
    std::string text;
    agreed_by_one(world, [&] {
        const Inventory inventory = read_inventory(path);
        text = json ? json_of(path, inventory, meta) : text_of(path, inventory, meta);
    });
    return broadcast_text(world, text);
}

}  // namespace trireme::app
