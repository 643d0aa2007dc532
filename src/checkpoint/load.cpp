#include <algorithm>
#include <type_traits>

#include "checkpoint/format.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

using checkpoint::Item;

template <class T>
void broadcast_vector(Communicator& comm, std::vector<T>& values) {
    values.resize(static_cast<std::size_t>(broadcast_value(comm, static_cast<std::int64_t>(values.size()))));
    comm.broadcast(view_of(values.data(), Shape{static_cast<std::int64_t>(values.size())}), 0);
}

/// Rank 0's meta data on all ranks. Collective.
void broadcast_meta(Communicator& comm, CheckpointMeta& meta) {
    static_assert(std::is_trivially_copyable_v<Position>);
    comm.broadcast(view_of(reinterpret_cast<std::uint8_t*>(&meta.position), Shape{sizeof(Position)}), 0);
    meta.config = broadcast_text(comm, meta.config);
    broadcast_vector(comm, meta.input_shift);
    broadcast_vector(comm, meta.input_scale);
    std::vector<std::int64_t> dims(meta.sample.begin(), meta.sample.end());
    broadcast_vector(comm, dims);
    meta.sample = Shape{};
    for (const std::int64_t dim : dims) meta.sample.push_back(dim);
    meta.outputs = broadcast_value(comm, meta.outputs);
    meta.samples = broadcast_value(comm, meta.samples);
    meta.optimizer = broadcast_text(comm, meta.optimizer);
    meta.state_names.resize(
        static_cast<std::size_t>(broadcast_value(comm, static_cast<std::int64_t>(meta.state_names.size()))));
    for (std::string& name : meta.state_names) name = broadcast_text(comm, name);
    meta.has_average = broadcast_value(comm, meta.has_average ? 1 : 0) != 0;
}

/// What the file and the model do not share, in words.
class Misfits {
public:
    Misfits(const io::File& file, const ParameterTable& table) : file_(file), table_(table) {}

    void compare_model(const std::string& group) {
        for (const Parameter& parameter : table_.all())
            compare("parameter " + parameter.name, group + "/" + parameter.name, parameter);
        for (const std::string& name : file_.children(group)) {
            const bool known =
                std::any_of(table_.all().begin(), table_.all().end(),
                            [&](const Parameter& parameter) { return parameter.name == name; });
            if (!known)
                found_.push_back("parameter " + name + " (" +
                                 file_.open(group + "/" + name).info().shape.text() +
                                 ") of the file is not in the model");
        }
    }

    void compare_states(const std::vector<Column>& states, const CheckpointMeta& meta) {
        for (const Column& state : states) {
            const std::string group = checkpoint::state_group(state.name());
            if (!file_.has(group)) {
                found_.push_back("optimizer state " + group + " is missing (the file was saved with " +
                                 meta.optimizer + ")");
                continue;
            }
            for (const Parameter& parameter : table_.all())
                if (parameter.role == Role::weight)
                    compare("optimizer state " + state.name() + " of " + parameter.name,
                            group + "/" + parameter.name, parameter);
        }
        for (const std::string& name : meta.state_names) {
            const bool known = std::any_of(states.begin(), states.end(),
                                           [&](const Column& state) { return state.name() == name; });
            if (!known)
                found_.push_back("optimizer state " + name + " of the file (saved with " + meta.optimizer +
                                 ") is not one of this optimizer");
        }
    }

    void refuse_any() const {
        if (found_.empty()) return;
        constexpr std::size_t shown = 6;
        std::string list;
        for (std::size_t i = 0; i < std::min(shown, found_.size()); ++i)
            list += (i > 0 ? "; " : "") + found_[i];
        if (found_.size() > shown) list += "; and " + std::to_string(found_.size() - shown) + " more";
        throw data_error(file_.path() + " does not fit the model: " + list);
    }

private:
    void compare(const std::string& what, const std::string& dataset, const Parameter& parameter) {
        if (!file_.is_dataset(dataset)) {
            found_.push_back(what + " (" + parameter.shape.text() + ") is missing in the file");
            return;
        }
        const Shape shape = file_.open(dataset).info().shape;
        if (!(shape == parameter.shape))
            found_.push_back(what + " is " + shape.text() + " in the file, " + parameter.shape.text() +
                             " in the model");
    }

    const io::File& file_;
    const ParameterTable& table_;
    std::vector<std::string> found_;
};

}  // namespace

CheckpointMeta read_checkpoint_meta(Communicator& comm, const std::string& path) {
    CheckpointMeta meta;
    agreed_by_one(comm, [&] { meta = checkpoint::read_meta(io::File(path, io::Access::read)); });
    broadcast_meta(comm, meta);
    return meta;
}

void load_checkpoint(Communicator& comm, const std::string& path, const ParameterTable& table, Arena& arena,
                     Part part) {
    bool has_average = false;
    agreed_by_one(comm, [&] {
        const io::File file(path, io::Access::read);
        const CheckpointMeta meta = checkpoint::read_meta(file);
        has_average = meta.has_average;
        if (part == Part::average && !has_average)
            throw data_error(path + ": has no averaged weights (train.ema was off when it was saved)");
        Misfits misfits(file, table);
        misfits.compare_model(checkpoint::weight_group);
        if (part == Part::training) misfits.compare_states(arena.states, meta);
        if (has_average && part != Part::weights) misfits.compare_model(checkpoint::average_group);
        misfits.refuse_any();
    });
    has_average = broadcast_value(comm, has_average ? 1 : 0) != 0;
    agreed_by_all(comm, [&] {
        const io::File file(path, io::Access::read);
        const auto read_column = [&](const Column& column, const std::string& group, bool statistics = true) {
            for (const Item& item : checkpoint::items_of(table, column, group, statistics))
                checkpoint::read_part(file.open(item.dataset), item, item.local, arena.device);
        };
        read_column(arena.weights,
                    part == Part::average ? checkpoint::average_group : checkpoint::weight_group);
        if (part != Part::training) return;
        for (const Column& state : arena.states)
            read_column(state, checkpoint::state_group(state.name()), false);
        if (arena.average)
            read_column(*arena.average, has_average ? checkpoint::average_group : checkpoint::weight_group);
    });
}

}  // namespace trireme
