#pragma once
// For tests of checkpoints: a small training state whose every element has bits of its own, and files
// compared object by object.

#include <bit>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "trireme/base/philox.hpp"
#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::testing {

struct StateOptions {
    std::int64_t width = 8;  // of the first layer
    std::vector<std::string> states = {"m", "v"};
    int shards = 1, shard = 0;  // which rows of the larger parameters are held here
};

// Fewer rows than ranks, a scalar, a statistic, a single element.
inline ParameterTable small_table(const StateOptions& options) {
    const std::int64_t width = options.width;
    ParameterTable table;
    const auto add = [&](const char* name, Shape shape, Role role = Role::weight) {
        Parameter parameter;
        parameter.name = name;
        parameter.shape = shape;
        parameter.role = role;
        if (shape.rank() > 0 && shape[0] >= options.shards) {
            // The last axis of the matrix, the first of everything else.
            const int axis = shape == Shape{width, 7} && options.shards > 1 ? 1 : 0;
            parameter.slice = Slice{axis, part_of({0, shape[axis]}, options.shards, options.shard)};
        }
        table.add(parameter);
    };
    add("0.linear.weight", {width, 7});
    add("0.linear.bias", {width});
    add("1.batchnorm.mean", {width}, Role::statistic);
    add("2.rows.weight", {3, 2, 1, 5});
    add("3.scale", {});
    add("4.bias", {1});
    table.lay_out();
    return table;
}

class State {
public:
    explicit State(const StateOptions& options = {})
        : device(make_device("cpu")),
          table(small_table(options)),
          arena(*device, table, {.state_names = options.states}) {}

    // Any bits: NaNs with payloads, infinities and denormals among them. The same for all ways to shard.
    void fill(std::uint64_t seed) {
        each([&](std::size_t column, std::size_t parameter, std::int64_t element, float& value) {
            value = std::bit_cast<float>(RandomStream(seed, Purpose::init, column, parameter)
                                             .word(static_cast<std::uint64_t>(element)));
        });
    }
    // The same as fill() would have put there. Statistics have no optimizer states: those are left out.
    bool holds(std::uint64_t seed, bool with_states = true) {
        bool same = true;
        each([&](std::size_t column, std::size_t parameter, std::int64_t element, float& value) {
            const bool saved = column == 0 || (with_states && table.all()[parameter].role == Role::weight);
            const auto expected = RandomStream(seed, Purpose::init, column, parameter)
                                      .word(static_cast<std::uint64_t>(element));
            same = same && (!saved || std::bit_cast<std::uint32_t>(value) == expected);
        });
        return same;
    }

    std::unique_ptr<Device> device;
    ParameterTable table;
    Arena arena;

private:
    template <class Visit>
    void each(Visit visit) {
        for (std::size_t column = 0; column <= arena.states.size(); ++column) {
            Column& values = column == 0 ? arena.weights : arena.states[column - 1];
            for (std::size_t p = 0; p < table.all().size(); ++p) {
                const Parameter& parameter = table.all()[p];
                float* here = values.range(parameter.place).as<float>();
                for (const Strip& strip : strips_of(parameter, {0, parameter.local_count()}))
                    for (std::int64_t i = 0; i < strip.count; ++i)
                        visit(column, p, strip.whole + i, here[strip.local + i]);
            }
        }
    }
};

// Every field differs from its default.
inline CheckpointMeta some_meta() {
    CheckpointMeta meta;
    meta.position = {.epoch = 3,
                     .step_in_epoch = 17,
                     .updates = 1234567890123,
                     .skipped = 2,
                     .samples = 99,
                     .scaler = {.scale = 0.1, .growth = 7, .skips = 3},
                     .plateau = {.seen = 5, .best = 0.3, .bad = 2, .cooldown = 1, .drops = 4},
                     .has_best = true,
                     .best = 0.97,
                     .best_step = 40,
                     .bad_evals = 1};
    meta.config = "[model]\nlayers = linear(10)  # \xC3\xA9\n";
    meta.input_shift = {0.5F, 0.25F, 1e-30F};
    meta.input_scale = {3.0F, 1.0F / 3.0F, 1.0F};
    meta.sample = {3, 28, 30};
    meta.outputs = 10;
    meta.samples = 60000;
    meta.optimizer = "adam";
    meta.state_names = {"m", "v"};
    return meta;
}

inline bool same_meta(const CheckpointMeta& a, const CheckpointMeta& b) {
    return a.position == b.position && a.config == b.config && a.input_shift == b.input_shift &&
           a.input_scale == b.input_scale && a.sample == b.sample && a.outputs == b.outputs &&
           a.samples == b.samples && a.optimizer == b.optimizer && a.state_names == b.state_names;
}

// Shape and bytes of every numeric data set of a file, and the name of every other object.
inline std::map<std::string, std::string> content_of(const io::File& file, const std::string& group = "") {
    std::map<std::string, std::string> content;
    for (const std::string& name : file.children(group.empty() ? "/" : group)) {
        const std::string object = group + "/" + name;
        if (object == "/config") {
            content[object] = file.read_text(object);
        } else if (!file.is_dataset(object)) {
            content[object] = "group";
            content.merge(content_of(file, object));
        } else {
            const io::Dataset dataset = file.open(object);
            const std::int64_t count = dataset.info().shape.count();
            std::string bytes(static_cast<std::size_t>(count) * sizeof(float), '\0');
            dataset.read_flat({0, count}, DType::f32, bytes.data());
            content[object] =
                std::string(name_of(dataset.info().dtype)) + dataset.info().shape.text() + ":" + bytes;
        }
    }
    return content;
}

// The same file without one object: everything else is copied by HDF5's own writer of this program.
inline void copy_without(const std::string& from, const std::string& to, const std::string& left_out) {
    const io::File source(from, io::Access::read);
    io::File target(to, io::Access::create);
    const auto dropped = [&](const std::string& object) {
        return object == left_out || object.starts_with(left_out + "/");
    };
    for (const auto& [object, unused] : content_of(source)) {
        if (dropped(object)) continue;
        if (object == "/config") {
            target.write_text(object, source.read_text(object));
        } else if (!source.is_dataset(object)) {
            target.create_group(object);
        } else {
            const io::Dataset dataset = source.open(object);
            const std::int64_t count = dataset.info().shape.count();
            std::vector<float> values(static_cast<std::size_t>(count));
            dataset.read_flat({0, count}, DType::f32, values.data());
            target.create(object, DType::f32, dataset.info().shape)
                .write_flat({0, count}, DType::f32, values.data());
        }
    }
    const auto copy = [&](const std::string& object, const std::vector<std::string>& names,
                          const auto& read) {
        for (const std::string& name : names)
            if (!dropped(object) && object + "@" + name != left_out)
                target.set_attribute(object, name, read(object, name).value());
    };
    const auto text = [&](const auto& object, const auto& name) {
        return source.text_attribute(object, name);
    };
    const auto number = [&](const auto& object, const auto& name) {
        return source.int_attribute(object, name);
    };
    const auto real = [&](const auto& object, const auto& name) {
        return source.real_attribute(object, name);
    };
    copy("/", {"format", "trireme", "created"}, text);
    copy("/", {"version"}, number);
    copy("/position",
         {"epoch", "step_in_epoch", "updates", "skipped", "samples", "growth", "skips_in_a_row",
          "plateau_seen", "plateau_bad", "plateau_cooldown", "plateau_drops", "has_best", "best_step",
          "bad_evals"},
         number);
    copy("/position", {"scale", "best", "plateau_best"}, real);
    copy("/data", {"sample"}, text);
    copy("/data", {"outputs", "samples"}, number);
    copy("/optim", {"name", "states"}, text);
    target.close();
}

}  // namespace trireme::testing
