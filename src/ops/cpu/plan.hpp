// A cached sequence of oneDNN primitives with its memory objects and argument lists. Running it only sets
// pointers: nothing on our side is allocated.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "ops/cpu/onednn.hpp"

namespace trireme::cpu {

class Plan {
public:
    /// The caller's pointer number `slot`; returns the operand's number.
    int operand(const OneDnn& library, const dnnl::memory::desc& desc, int slot);
    /// A tensor in scratch; returns the operand's number.
    int temporary(const OneDnn& library, const dnnl::memory::desc& desc);
    /// One primitive: pairs of DNNL_ARG_* and operand number. A scratchpad is added where it needs one.
    void step(const OneDnn& library, const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
              std::initializer_list<std::pair<int, int>> arguments);

    bool empty() const { return steps_.empty(); }
    std::size_t scratch_bytes() const { return scratch_bytes_; }
    void run(const OneDnn& library, std::span<void* const> pointers, void* scratch);

private:
    struct Operand {
        dnnl::memory memory;
        int slot = -1;           ///< the caller's pointer, or
        std::size_t offset = 0;  ///< where it lies in scratch
    };
    struct Step {
        dnnl::primitive primitive;
        std::array<dnnl_exec_arg_t, 6> arguments{};
        int count = 0;
    };
    std::vector<Operand> operands_;
    std::vector<Step> steps_;
    std::size_t scratch_bytes_ = 0;
};

/// Makes a plan, turning the library's exceptions into ours.
Plan make_plan(const char* what, const std::function<Plan()>& build);

}  // namespace trireme::cpu
