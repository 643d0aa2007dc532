// What info says of a checkpoint, a data set and this machine.
#pragma once

#include <string>
#include <vector>

#include "trireme/data/dataset.hpp"
#include "trireme/train/runtime.hpp"

namespace trireme::app {

/// Each returns the text on all ranks, for rank 0 to print. Collective. `json`: one object on one line.
/// @throws Error (bad_data, all ranks) naming the file.
std::string describe_checkpoint(Runtime& runtime, const std::string& path, bool json);
/// `context`: the length of windows to count in token data; 0: none.
std::string describe_dataset(Runtime& runtime, const std::string& patterns, const std::string& x_name,
                             const std::string& y_name, std::int64_t context, bool json);
std::string describe_tokens(Runtime& runtime, const std::string& patterns, const DatasetLayout& layout,
                            bool windows, bool json);
std::string describe_build(Runtime& runtime, bool json);

}  // namespace trireme::app
