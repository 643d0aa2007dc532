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

/// One flat buffer laid out by the table: all of the arena, or the pieces of it that this rank owns.
class Column {
public:
    Column(Device& device, const ParameterTable& table, std::string name, DType dtype = DType::f32)
        : Column(device, std::vector<Range>{{0, table.arena_size()}}, std::move(name), dtype) {}
    /// `pieces`: in arena order.
    Column(Device& device, std::vector<Range> pieces, std::string name, DType dtype = DType::f32);

    const std::string& name() const { return name_; }
    DType dtype() const { return dtype_; }
    const std::vector<Range>& pieces() const { return pieces_; }
    /// Everything that is there, one piece after the other.
    View whole() const { return {buffer_.data(), dtype_, Shape{size_}}; }
    /// An interval of the arena, which lies within one piece.
    View range(Range r) const { return {at(r), dtype_, Shape{r.size()}}; }
    /// The parameter in the shape of its local part; all of it must be there.
    View of(const Parameter& p) const { return {at(p.place), dtype_, p.local()}; }
    /// What is there of an interval of the arena: at most one stretch, since no parameter spans two pieces.
    Range held(Range place) const;
    std::size_t bytes() const { return buffer_.bytes(); }

private:
    void* at(Range r) const;

    std::string name_;
    std::vector<Range> pieces_;
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
