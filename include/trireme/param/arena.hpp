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

/// One flat buffer laid out by the table: all of the arena, or the pieces of it that this rank keeps. Or the
/// arena as layers see it while parts of it lie elsewhere, in memory of others.
class Column {
public:
    /// An interval of the arena and where its elements lie.
    struct Piece {
        Range range;
        void* data = nullptr;
    };

    Column(Device& device, const ParameterTable& table, std::string name, DType dtype = DType::f32)
        : Column(device, std::vector<Range>{{0, table.arena_size()}}, std::move(name), dtype) {}
    /// `pieces`: in arena order.
    Column(Device& device, const std::vector<Range>& pieces, std::string name, DType dtype = DType::f32);
    /// Owns nothing: the memory of the pieces, which are in arena order, has to outlive it.
    Column(std::vector<Piece> pieces, std::string name, DType dtype);

    const std::string& name() const { return name_; }
    DType dtype() const { return dtype_; }
    const std::vector<Piece>& pieces() const { return pieces_; }
    /// Everything that is there, one piece after the other. Not where the memory is another's.
    View whole() const { return {buffer_.data(), dtype_, Shape{size_}}; }
    /// An interval of the arena, which lies within one piece.
    View range(Range r) const { return {at(r), dtype_, Shape{r.size()}}; }
    /// The parameter in the shape of its local part; all of it must be there.
    View of(const Parameter& p) const { return {at(p.place), dtype_, p.local()}; }
    /// What is there of an interval of the arena: at most one stretch, since no parameter spans two pieces.
    Range held(Range place) const;
    /// Of its own memory.
    std::size_t bytes() const { return buffer_.bytes(); }

private:
    /// The first piece that ends after `element`.
    std::vector<Piece>::const_iterator piece_after(std::int64_t element) const;
    void* at(Range r) const;

    std::string name_;
    std::vector<Piece> pieces_;
    std::int64_t size_ = 0;  ///< of its own memory, in elements
    DType dtype_;
    Buffer buffer_;
};

/// What this rank keeps of each column, in arena order.
struct ArenaPieces {
    std::vector<Range> weights;    ///< also of their 16-bit copy
    std::vector<Range> gradients;  ///< of the sums over all ranks
    std::vector<Range> states;     ///< each of the optimizer's columns
    std::vector<Range> updated;    ///< what this rank's update is about: also of the moving average
};

struct ArenaOptions {
    std::vector<std::string> state_names{};  ///< the optimizer's columns
    DType compute = DType::f32;              ///< what layers compute in
    bool average = false;                    ///< keep a moving average of the weights
    std::optional<ArenaPieces> pieces{};     ///< absent: all of the arena
};

/// The columns of one training state, float32 all but `low`.
struct Arena {
    /// The device is kept by reference.
    Arena(Device& device, const ParameterTable& table, const ArenaOptions& options);

    Device& device;  ///< where the columns lie
    Column weights;
    Column gradients;
    std::vector<Column> states;     ///< in the optimizer's order ("m", "v")
    std::optional<Column> low;      ///< the weights rounded to 16 bits, where layers compute in those
    std::optional<Column> average;  ///< moving average of the weights

    /// What products read their weights from.
    const Column& operands() const { return low ? *low : weights; }

private:
    Arena(Device& device, const ArenaPieces& pieces, const ArenaOptions& options);
};

}  // namespace trireme
