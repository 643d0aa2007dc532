#include "train/weight_source.hpp"

#include <algorithm>
#include <set>

#include "train/torch_names.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/nn/description.hpp"
#include "trireme/ops/ops.hpp"

namespace trireme {
namespace {

std::string list_text(const std::vector<float>& values) {
    std::string text;
    for (const float value : values) text += (text.empty() ? "" : ",") + to_text(static_cast<double>(value));
    return text;
}

std::vector<float> list_from(const SafetensorsFile& file, const std::string& key) {
    const auto found = file.metadata().find(key);
    std::vector<float> values;
    if (found == file.metadata().end()) return values;
    for (const std::string& part : split(found->second, ',')) {
        const auto value = parse_real(part);
        if (!value)
            throw data_error(file.path() + ": __metadata__: " + key + " is \"" + found->second +
                             "\", expected numbers between commas");
        values.push_back(static_cast<float>(*value));
    }
    return values;
}

std::vector<std::string> names_of(const ParameterTable& table) {
    std::vector<std::string> names;
    for (const Parameter& parameter : table.all()) names.push_back(parameter.name);
    return names;
}

/// The tensor of a parameter, under its name in PyTorch or its own. Nothing where there is neither.
const SafetensorsEntry* find_tensor(const SafetensorsFile& file, const std::string& torch,
                                    const std::string& own) {
    const SafetensorsEntry* entry = file.find(torch);
    return entry != nullptr ? entry : file.find(own);
}

/// The last product's rows: what the model gives, be it classes or values.
std::int64_t outputs_of(const SafetensorsFile& file, const std::vector<std::string>& layers) {
    std::string weight;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const LayerSpec spec(layers[i], static_cast<int>(i));
        if (spec.kind() == "linear" || spec.kind() == "conv")
            weight = spec.text("tied", spec.name()) + ".weight";
    }
    if (weight.empty()) return 1;
    const std::string name = torch_names(layers, {weight}).front();
    const SafetensorsEntry* entry = find_tensor(file, name, weight);
    if (entry == nullptr || entry->shape.rank() < 2 || entry->shape.count() == 0)
        throw data_error(file.path() + " does not fit the model: " + name +
                         (entry == nullptr
                              ? " is missing in the file"
                              : " is " + entry->shape.text() + " in the file, expected a matrix"));
    return entry->shape[0];
}

WeightSource source_of(const SafetensorsFile& file, const std::vector<std::string>& layers) {
    WeightSource source{.path = file.path(), .outputs = outputs_of(file, layers)};
    if (const auto found = file.metadata().find("normalize"); found != file.metadata().end())
        source.normalize = found->second;
    source.normalization = {list_from(file, "shift"), list_from(file, "scale")};
    if (source.normalization.shift.size() != source.normalization.scale.size())
        throw data_error(file.path() + ": __metadata__: shift and scale differ in length");
    return source;
}

WeightSource source_of(const std::string& path, const CheckpointMeta& meta) {
    WeightSource source{
        .path = path, .normalization = {meta.input_shift, meta.input_scale}, .outputs = meta.outputs};
    for (const auto& [key, value] : parse_ini(meta.config, path + ":/config"))
        if (key == "data.normalize") source.normalize = value;
    return source;
}

bool readable(DType type) {
    return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

/// The tensor of each parameter, in the order of the table.
std::vector<const SafetensorsEntry*> match(const SafetensorsFile& file,
                                           const std::vector<std::string>& layers,
                                           const ParameterTable& table) {
    constexpr std::size_t shown = 6;
    const std::vector<std::string> own = names_of(table), torch = torch_names(layers, own);
    std::vector<const SafetensorsEntry*> tensors;
    std::vector<std::string> misfits;
    std::set<std::string> known;
    for (std::size_t i = 0; i < own.size(); ++i) {
        const Shape& shape = table.all()[i].shape;
        const SafetensorsEntry* entry = find_tensor(file, torch[i], own[i]);
        tensors.push_back(entry);
        if (entry == nullptr) {
            misfits.push_back(torch[i] + " (" + shape.text() + ") is missing in the file");
            continue;
        }
        known.insert(entry->name);
        if (torch[i].ends_with(".running_mean"))  // a counter of PyTorch's that nothing here needs
            known.insert(torch[i].substr(0, torch[i].rfind('.')) + ".num_batches_tracked");
        if (!(entry->shape == shape))
            misfits.push_back(entry->name + " is " + entry->shape.text() + " in the file, " + shape.text() +
                              " in the model");
        else if (!readable(entry->dtype))
            misfits.push_back(entry->name + " is " + std::string(safetensors_name(entry->dtype)) +
                              " in the file, expected F32, BF16 or F16");
    }
    for (const SafetensorsEntry& entry : file.entries())
        if (!known.contains(entry.name))
            misfits.push_back(entry.name + " (" + entry.shape.text() + ") of the file is not in the model");
    if (misfits.empty()) return tensors;
    std::string list;
    for (std::size_t i = 0; i < std::min(shown, misfits.size()); ++i)
        list += (i > 0 ? "; " : "") + misfits[i];
    if (misfits.size() > shown) list += "; and " + std::to_string(misfits.size() - shown) + " more";
    throw data_error(file.path() + " does not fit the model: " + list);
}

/// Elements of a file on their way to the device: a piece at a time, converted there.
class Inlet {
public:
    Inlet(Device& device, Ops& ops) : device_(device), ops_(ops), stage_(device, piece * sizeof(float)) {}

    void read(const SafetensorsFile& file, const SafetensorsEntry& entry, std::int64_t first, View to) {
        for (std::int64_t at = 0; at < to.count(); at += piece) {
            const std::int64_t count = std::min(piece, to.count() - at);
            const std::size_t bytes = static_cast<std::size_t>(count) * size_of(entry.dtype);
            file.read(entry, {first + at, first + at + count}, host_.data());
            float* target = to.as<float>() + at;
            if (entry.dtype == DType::f32) {
                device_.copy_from_host(target, host_.data(), bytes);
            } else {
                device_.copy_from_host(stage_.data(), host_.data(), bytes);
                ops_.copy({stage_.data(), entry.dtype, Shape{count}}, view_of(target, Shape{count}));
            }
            device_.synchronize();
        }
    }

private:
    static constexpr std::int64_t piece = std::int64_t{1} << 20;
    Device& device_;
    Ops& ops_;
    Buffer stage_;
    std::vector<float> host_ = std::vector<float>(piece);
};

void load_safetensors(Communicator& comm, Device& device, Ops& ops, const std::string& path,
                      const std::vector<std::string>& layers, const ParameterTable& table, Arena& arena) {
    agreed_by_one(comm, [&] { match(SafetensorsFile(path), layers, table); });
    agreed_by_all(comm, [&] {
        const SafetensorsFile file(path);
        const std::vector<const SafetensorsEntry*> tensors = match(file, layers, table);
        Inlet inlet(device, ops);
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const Parameter& parameter = table.all()[i];
            const Range held = arena.weights.held(parameter.place);
            const std::int64_t origin = held.empty() ? 0 : parameter.place.begin;
            for (const Strip& strip : strips_of(parameter, {held.begin - origin, held.end - origin}))
                inlet.read(file, *tensors[i], strip.whole,
                           arena.weights.range({origin + strip.local, origin + strip.local + strip.count}));
        }
    });
}

}  // namespace

WeightSource read_weight_source(Communicator& comm, const std::string& path,
                                const std::vector<std::string>& layers) {
    if (!is_safetensors(path)) return source_of(path, read_checkpoint_meta(comm, path));
    WeightSource source{.path = path};
    std::string shift, scale;
    agreed_by_one(comm, [&] {
        source = source_of(SafetensorsFile(path), layers);
        shift = list_text(source.normalization.shift);
        scale = list_text(source.normalization.scale);
    });
    source.normalize = broadcast_text(comm, source.normalize);
    source.outputs = broadcast_value(comm, source.outputs);
    const auto broadcast_list = [&](const std::string& text) {
        std::vector<float> values;
        for (const std::string& part : split(broadcast_text(comm, text), ','))
            values.push_back(static_cast<float>(parse_real(part).value()));
        return values;
    };
    source.normalization.shift = broadcast_list(shift);
    source.normalization.scale = broadcast_list(scale);
    return source;
}

Normalization normalization_for(Runtime& runtime, const Config& config, const WeightSource& source,
                                const DatasetLayout& set) {
    const std::string& wanted = config.data.normalize;
    const std::size_t channels = source.normalization.shift.size();
    const bool fits = channels <= 1 || channels == static_cast<std::size_t>(set.sample[0]);
    if (source.normalize == wanted && fits) return source.normalization;
    if (!source.normalize.empty() && source.normalize != wanted)
        runtime.log.warning("data.normalize=" + wanted + ", but the weights of " + source.path +
                            " have learned with " + source.normalize);
    return make_normalization(runtime.mesh.world(), set, wanted);
}

void load_weights(Communicator& comm, Device& device, Ops& ops, const WeightSource& source,
                  const std::vector<std::string>& layers, const ParameterTable& table, Arena& arena) {
    if (is_safetensors(source.path))
        load_safetensors(comm, device, ops, source.path, layers, table, arena);
    else
        load_checkpoint(comm, source.path, table, arena, Part::weights);
}

void put_normalization(SafetensorsMetadata& metadata, const std::string& normalize,
                       const Normalization& normalization) {
    metadata["normalize"] = normalize;
    if (normalization.identity()) return;
    metadata["shift"] = list_text(normalization.shift);
    metadata["scale"] = list_text(normalization.scale);
}

}  // namespace trireme
