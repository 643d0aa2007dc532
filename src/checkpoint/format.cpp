#include "checkpoint/format.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <type_traits>

#include "trireme/base/build_info.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme::checkpoint {
namespace {

enum class Since {
    first,
    later
};  // later: files of earlier versions lack it, and the field keeps its default

/// Calls visit(name, field, since) for each field of a position: the one list of the attributes of /position.
template <class AnyPosition, class Visit>
void for_each_field(AnyPosition& position, Visit visit) {
    static_assert(sizeof(Position) == 17 * 8,
                  "a field of Position was added or removed: change this list with it");
    visit("epoch", position.epoch, Since::first);
    visit("step_in_epoch", position.step_in_epoch, Since::first);
    visit("updates", position.updates, Since::first);
    visit("skipped", position.skipped, Since::first);
    visit("samples", position.samples, Since::first);
    visit("scale", position.scaler.scale, Since::first);
    visit("growth", position.scaler.growth, Since::first);
    visit("skips_in_a_row", position.scaler.skips, Since::later);
    visit("plateau_seen", position.plateau.seen, Since::later);
    visit("plateau_best", position.plateau.best, Since::later);
    visit("plateau_bad", position.plateau.bad, Since::later);
    visit("plateau_cooldown", position.plateau.cooldown, Since::later);
    visit("plateau_drops", position.plateau.drops, Since::later);
    visit("has_best", position.has_best, Since::first);
    visit("best", position.best, Since::first);
    visit("best_step", position.best_step, Since::first);
    visit("bad_evals", position.bad_evals, Since::first);
}

std::string now_utc() {
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&now, &parts);
    std::array<char, 32> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return text.data();
}

void write_vector(io::File& file, const std::string& dataset, const std::vector<float>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    file.create(dataset, DType::f32, Shape{count}).write_flat({0, count}, DType::f32, values.data());
}

std::vector<float> read_vector(const io::File& file, const std::string& name) {
    const io::Dataset dataset = file.open(name);
    const std::int64_t count = dataset.info().shape.count();
    std::vector<float> values(static_cast<std::size_t>(count));
    dataset.read_flat({0, count}, DType::f32, values.data());
    return values;
}

template <class T>
T required(const io::File& file, const std::string& object, const std::string& name, std::optional<T> value) {
    if (!value)
        throw data_error(file.path() + ": damaged checkpoint: " + object + " has no attribute " + name);
    return *value;
}

std::int64_t required_int(const io::File& file, const std::string& object, const std::string& name) {
    return required(file, object, name, file.int_attribute(object, name));
}
std::string required_text(const io::File& file, const std::string& object, const std::string& name) {
    return required(file, object, name, file.text_attribute(object, name));
}

/// Refuses what is no checkpoint, or one of a later format.
void check_format(const io::File& file) {
    if (file.text_attribute("/", "format") != format_name)
        throw data_error(file.path() +
                         ": an HDF5 file, but no Trireme checkpoint (its attribute format is not \"" +
                         format_name + "\")");
    const std::int64_t version = required_int(file, "/", "version");
    if (version < 1 || version > format_version)
        throw data_error(
            file.path() + ": checkpoint format version " + std::to_string(version) + ", written by Trireme " +
            file.text_attribute("/", "trireme").value_or("of unknown version") + "; this program (" +
            std::string(build_info().version) + ") reads up to version " + std::to_string(format_version));
}

Shape shape_of(const io::File& file, const std::string& text) {
    Shape shape;
    if (text == Shape{}.text()) return shape;
    for (const std::string& part : split(text, 'x')) {
        const auto dim = parse_int(part);
        if (!dim || *dim < 0 || shape.rank() == Shape::max_rank)
            throw data_error(file.path() + ": damaged checkpoint: attribute sample of /data is \"" + text +
                             "\", expected extents like 1x28x28");
        shape.push_back(*dim);
    }
    return shape;
}

/// Calls each(first element of the whole, count, where they lie) for what is read or written at once: as much
/// as lies in one stretch, and on a device no more than goes through host memory at a time.
template <class Each>
void for_pieces(const Item& item, Range local, const Device& device, const Each& each) {
    constexpr std::int64_t most_copied = std::int64_t{4} << 20;
    for (const Strip& strip : strips_of(*item.parameter, local)) {
        const std::int64_t most = device.host_memory() ? strip.count : most_copied;
        for (std::int64_t done = 0; done < strip.count; done += most)
            each(strip.whole + done, std::min(most, strip.count - done),
                 item.at + (strip.local + done - item.local.begin));
    }
}

void read_last_elements(const io::File& file, const std::string& group) {
    const std::vector<std::string> names = file.children(group);
    for (const std::string& name : names) {
        const io::Dataset dataset = file.open(group + "/" + name);
        const std::int64_t count = dataset.info().shape.count();
        float last = 0;
        if (count > 0) dataset.read_flat({count - 1, count}, DType::f32, &last);
    }
}

}  // namespace

std::string state_group(const std::string& state) {
    return "/optim/" + state;
}

std::vector<Item> items_of(const ParameterTable& table, const Column& column, const std::string& group,
                           bool with_statistics) {
    std::vector<Item> items;
    for (const Parameter& parameter : table.all())
        if (with_statistics || parameter.role == Role::weight) {
            const Range held = column.held(parameter.place);
            const std::int64_t origin = held.empty() ? 0 : parameter.place.begin;
            items.push_back({group + "/" + parameter.name,
                             &parameter,
                             {held.begin - origin, held.end - origin},
                             column.range(held).as<float>()});
        }
    return items;
}

void read_part(const io::Dataset& dataset, const Item& item, Range local, Device& device) {
    for_pieces(item, local, device, [&](std::int64_t first, std::int64_t count, float* at) {
        if (device.host_memory()) return dataset.read_flat({first, first + count}, DType::f32, at);
        std::vector<float> host(static_cast<std::size_t>(count));
        dataset.read_flat({first, first + count}, DType::f32, host.data());
        device.copy_from_host(at, host.data(), host.size() * sizeof(float));
    });
}

void write_part(io::Dataset& dataset, const Item& item, Range local, Device& device) {
    for_pieces(item, local, device, [&](std::int64_t first, std::int64_t count, const float* at) {
        if (device.host_memory()) return dataset.write_flat({first, first + count}, DType::f32, at);
        std::vector<float> host(static_cast<std::size_t>(count));
        device.copy_to_host(host.data(), at, host.size() * sizeof(float));
        dataset.write_flat({first, first + count}, DType::f32, host.data());
    });
}

std::vector<Item> items_of(const ParameterTable& table, const Arena& arena) {
    std::vector<Item> items = items_of(table, arena.weights, weight_group, true);
    const auto add = [&](std::vector<Item> more) { items.insert(items.end(), more.begin(), more.end()); };
    for (const Column& state : arena.states) add(items_of(table, state, state_group(state.name()), false));
    if (arena.average) add(items_of(table, *arena.average, average_group, true));
    return items;
}

void write_meta(io::File& file, const CheckpointMeta& meta, const Arena& arena) {
    file.set_attribute("/", "format", std::string(format_name));
    file.set_attribute("/", "version", format_version);
    file.set_attribute("/", "trireme", std::string(build_info().version));
    file.set_attribute("/", "created", now_utc());

    file.create_group("/position");
    for_each_field(meta.position, [&](const char* name, auto value, Since) {
        if constexpr (std::is_same_v<decltype(value), double>)
            file.set_attribute("/position", name, value);
        else
            file.set_attribute("/position", name, static_cast<std::int64_t>(value));
    });

    file.write_text("/config", meta.config);

    file.create_group("/data");
    write_vector(file, "/data/shift", meta.input_shift);
    write_vector(file, "/data/scale", meta.input_scale);
    file.set_attribute("/data", "sample", meta.sample.text());
    file.set_attribute("/data", "outputs", meta.outputs);
    file.set_attribute("/data", "samples", meta.samples);

    file.create_group(weight_group);
    file.create_group("/optim");
    file.set_attribute("/optim", "name", meta.optimizer);
    std::string states;
    for (const Column& state : arena.states) {
        file.create_group(state_group(state.name()));
        states += (states.empty() ? "" : ",") + state.name();
    }
    file.set_attribute("/optim", "states", states);
    if (arena.average) file.create_group(average_group);
}

CheckpointMeta read_meta(const io::File& file) {
    check_format(file);
    for (const char* object :
         {"/position", "/config", "/data", "/data/shift", "/data/scale", "/model", "/optim"})
        if (!file.has(object))
            throw data_error(file.path() + ": damaged checkpoint: " + object + " is missing");

    CheckpointMeta meta;
    for_each_field(meta.position, [&](const char* name, auto& value, Since since) {
        if (since == Since::later && !file.real_attribute("/position", name)) return;
        if constexpr (std::is_same_v<decltype(value), double&>)
            value = required(file, "/position", name, file.real_attribute("/position", name));
        else if constexpr (std::is_same_v<decltype(value), bool&>)
            value = required_int(file, "/position", name) != 0;
        else
            value = required_int(file, "/position", name);
    });
    meta.config = file.read_text("/config");
    meta.input_shift = read_vector(file, "/data/shift");
    meta.input_scale = read_vector(file, "/data/scale");
    meta.sample = shape_of(file, required_text(file, "/data", "sample"));
    meta.outputs = required_int(file, "/data", "outputs");
    meta.samples = required_int(file, "/data", "samples");
    meta.optimizer = required_text(file, "/optim", "name");
    meta.state_names = split(required_text(file, "/optim", "states"), ',');
    meta.has_average = file.has(average_group);
    return meta;
}

void require_whole(const std::string& path) {
    const io::File file(path, io::Access::read);
    const CheckpointMeta meta = read_meta(file);
    read_last_elements(file, weight_group);
    if (meta.has_average) read_last_elements(file, average_group);
    for (const std::string& state : meta.state_names) {
        if (!file.has(state_group(state)))
            throw data_error(path + ": damaged checkpoint: optimizer state " + state_group(state) +
                             " is missing");
        read_last_elements(file, state_group(state));
    }
}

}  // namespace trireme::checkpoint
