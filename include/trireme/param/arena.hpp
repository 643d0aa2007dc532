// Flat columns over the parameter table: weights, gradients, optimizer moments. A Range of a column is what
// buckets, shards, updates and checkpoints are made of.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/param/table.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme {

/// One flat buffer laid out by the table.
class Column {
public:
    Column(Device& device, const ParameterTable& table, std::string name, DType dtype = DType::f32)
        : name_(std::move(name)),
          size_(table.arena_size()),
          dtype_(dtype),
          buffer_(device, static_cast<std::size_t>(table.arena_size()) * size_of(dtype)) {}

    const std::string& name() const { return name_; }
    DType dtype() const { return dtype_; }
    View whole() const { return {at(0), dtype_, Shape{size_}}; }
    View range(Range r) const { return {at(r.begin), dtype_, Shape{r.size()}}; }
    /// The parameter in its shape.
    View of(const Parameter& p) const { return {at(p.place.begin), dtype_, p.shape}; }

private:
    void* at(std::int64_t element) const {
        return buffer_.as<char>() + static_cast<std::size_t>(element) * size_of(dtype_);
    }

    std::string name_;
    std::int64_t size_;
    DType dtype_;
    Buffer buffer_;
};

struct ArenaOptions {
    std::vector<std::string> state_names{};  ///< the optimizer's columns
    DType compute = DType::f32;              ///< what layers compute in
    bool average = false;                    ///< keep a moving average of the weights
};

/// The columns of one training state, float32 all but `low`.
struct Arena {
    Arena(Device& device, const ParameterTable& table, const ArenaOptions& options);

    Column weights;
    Column gradients;
    std::vector<Column> states;     ///< in the optimizer's order ("m", "v")
    std::optional<Column> low;      ///< the weights rounded to 16 bits, where layers compute in those
    std::optional<Column> average;  ///< moving average of the weights

    /// What products read their weights from.
    const Column& operands() const { return low ? *low : weights; }
};

}  // namespace trireme
