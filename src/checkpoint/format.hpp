// What stands where in a checkpoint file: the names, the meta data in and out, and the data sets that belong
// to a model. The file's format in words: doc/checkpoints.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/checkpoint/checkpoint.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::checkpoint {

inline constexpr const char* format_name = "trireme-checkpoint";
inline constexpr std::int64_t format_version = 1;

/// One parameter in one column: a data set of the file in the parameter's whole shape, and what of it lies
/// here.
struct Item {
    std::string dataset;  ///< "/model/0.linear.weight", "/optim/m/0.linear.weight"
    const Parameter* parameter;
    Range local;  ///< the elements of the parameter's local part that this column holds
    float* at;    ///< where they lie
};

/// Elements [local) of an item's parameter, which are part of item.local: from or to the file, whose data set
/// has the whole shape. `device`: where the column lies.
void read_part(const io::Dataset& dataset, const Item& item, Range local, Device& device);
void write_part(io::Dataset& dataset, const Item& item, Range local, Device& device);

/// The data sets of one column, in the order of the table.
std::vector<Item> items_of(const ParameterTable& table, const Column& column, const std::string& group,
                           bool with_statistics);
/// Those of a whole training state: weights, optimizer's states (statistics have none), average.
std::vector<Item> items_of(const ParameterTable& table, const Arena& arena);

inline constexpr const char* weight_group = "/model";
inline constexpr const char* average_group = "/ema";

std::string state_group(const std::string& state);  ///< "/optim/m"

/// Everything but the items; the groups for those of the arena.
void write_meta(io::File& file, const CheckpointMeta& meta, const Arena& arena);
/// @throws Error (bad_data) naming the file when it is foreign, newer than this program, or lacks something.
CheckpointMeta read_meta(const io::File& file);

/// Opens a file and reads the last element of each of its data sets. @throws Error (bad_data) naming what is
/// damaged.
void require_whole(const std::string& path);

}  // namespace trireme::checkpoint
