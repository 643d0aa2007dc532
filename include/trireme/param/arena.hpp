// Flat columns over the parameter table: weights, gradients, optimizer moments. A Range of a column is what
// buckets, shards, updates and checkpoints are made of.
#pragma once

#include <string>
#include <vector>

#include "trireme/param/table.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

/// One flat float32 buffer laid out by the table.
class Column {
public:
    Column(Device& device, const ParameterTable& table, std::string name)
        : name_(std::move(name)),
          size_(table.arena_size()),
          buffer_(device, static_cast<std::size_t>(table.arena_size()) * sizeof(float)) {}

    const std::string& name() const { return name_; }
    View whole() const { return view_of(buffer_.as<float>(), Shape{size_}); }
    View range(Range r) const { return view_of(buffer_.as<float>() + r.begin, Shape{r.size()}); }
    /// The parameter in its shape.
    View of(const Parameter& p) const { return view_of(buffer_.as<float>() + p.place.begin, p.shape); }

private:
    std::string name_;
    std::int64_t size_;
    Buffer buffer_;
};

/// The columns of one training state. `states` are the optimizer's, in its order ("m", "v").
struct Arena {
    Arena(Device& device, const ParameterTable& table, const std::vector<std::string>& state_names);

    Column weights;
    Column gradients;
    std::vector<Column> states;
};

}  // namespace trireme
