// The parameter table: every fact about every parameter, in one place. Nothing else knows where a parameter
// lies in the arena, whether it decays, or how it starts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

/// A weight follows its gradient; a statistic (BatchNorm's running mean and variance) follows the average
/// that the lanes put into its place in the gradient column. Both are reduced alike.
enum class Role { weight, statistic };

enum class InitKind { kaiming, xavier, normal, constant };

struct Init {
    InitKind kind = InitKind::constant;
    float value = 0;          ///< constant: the value; normal: the standard deviation
    std::int64_t fan_in = 1;  ///< summands of one output
    std::int64_t fan_out = 1;
};

/// An interval along one axis of a parameter: what one rank of a tensor-parallel group holds of it.
struct Slice {
    int axis = 0;
    Range range{};
};

struct Parameter {
    std::string name;  ///< "3.conv.weight"
    Shape shape;       ///< whole, unsharded
    Role role = Role::weight;
    bool decay = false;  ///< weight decay applies (matrices and kernels)
    Init init{};
    float average = 0.1F;          ///< statistic: how far it follows one step
    std::optional<Slice> slice{};  ///< what this rank's model holds of it; absent: everything
    bool held = true;              ///< false: another stage of the pipeline has it
    bool counted = true;           ///< false: a copy, which another rank counts in sums over all parameters
    bool shared = false;           ///< a second layer here uses it, and leaves its gradient there first
    bool tied = false;             ///< two layers use it, here or on different stages of the pipeline
    bool operand = false;          ///< products read it, in the compute type; all else reads float32
    int block = 0;                 ///< the top-level layer that it belongs to; set by ParameterTable::add
    Range place{};                 ///< where it lies in the arena; set by ParameterTable::lay_out

    /// Extents of the part that is held here; [0] where it is not.
    Shape local() const;
    std::int64_t local_count() const { return local().count(); }
};

/// Elements [local, local + count) of a rank's part, which are elements [whole, whole + count) of the whole.
struct Strip {
    std::int64_t whole = 0, local = 0, count = 0;
};
/// The strips that an interval of the local part is made of: one where the slice is along the outermost
/// axis.
std::vector<Strip> strips_of(const Parameter& parameter, Range local);

using ParameterId = int;

/// Every parameter, and every part of a bucket, starts at a multiple of so many elements: 64 bytes of
/// float32, one cache line, four 16-byte accesses.
inline constexpr std::int64_t parameter_alignment = 16;

class ParameterTable {
public:
    /// Parameters are added in the order of the forward pass.
    /// @throws Error (bad_usage) when the name is taken.
    ParameterId add(Parameter parameter);

    /// What is added from now on belongs to the next block: layers whose parameters are wanted together.
    /// Returns its number, from 0.
    int begin_block() { return ++block_; }

    /// A second layer uses this parameter; `here`: a layer of this rank. Where the first one is on another
    /// stage of the pipeline, this rank gets a copy, and the gradients of both have to be added.
    void share(ParameterId id, bool here);
    /// Other stages of the pipeline hold these.
    void leave_out(Range ids);

    /// Places all parameters: first the statistics, which are final before backward begins, then the weights,
    /// last added first, the order in which backward finishes gradients. Each starts at a multiple of
    /// parameter_alignment; the gaps stay zero in every column.
    void lay_out();
    /// The parameters as they lie in the arena.
    const std::vector<ParameterId>& order() const { return order_; }
    /// A parameter's place with the gap that follows it.
    Range slot(ParameterId id) const;

    const std::vector<Parameter>& all() const { return parameters_; }
    const Parameter& operator[](ParameterId id) const { return parameters_[static_cast<std::size_t>(id)]; }
    int count() const { return static_cast<int>(parameters_.size()); }
    int blocks() const { return std::max(block_, 0) + 1; }
    /// Elements of one arena column, gaps included.
    std::int64_t arena_size() const { return arena_size_; }
    /// Elements of all weights of the whole model, gaps and statistics excluded.
    std::int64_t weight_count() const;
    /// The same of what this rank holds.
    std::int64_t local_weight_count() const;
    /// Everything below this arena offset is finished once backward is through with parameter `id` and all
    /// later ones.
    std::int64_t finished_after(ParameterId id) const;

private:
    std::vector<Parameter> parameters_;
    std::vector<ParameterId> order_;
    std::int64_t arena_size_ = 0;
    int block_ = -1;  ///< the last one begun; parameters added before the first belong to it
};

}  // namespace trireme
