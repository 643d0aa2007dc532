#include "ops/cpu/plan.hpp"

#include "trireme/base/error.hpp"

namespace trireme::cpu {
namespace {

constexpr std::size_t cache_line = 64;

}  // namespace

int Plan::operand(const OneDnn& library, const dnnl::memory::desc& desc, int slot) {
    operands_.push_back({dnnl::memory(desc, library.engine, DNNL_MEMORY_NONE), slot, 0});
    return static_cast<int>(operands_.size()) - 1;
}

int Plan::temporary(const OneDnn& library, const dnnl::memory::desc& desc) {
    const int number = operand(library, desc, -1);
    operands_.back().offset = scratch_bytes_;
    scratch_bytes_ += (desc.get_size() + cache_line - 1) / cache_line * cache_line;
    return number;
}

void Plan::step(const OneDnn& library, const dnnl::primitive& primitive, const dnnl::memory::desc& scratchpad,
                std::initializer_list<std::pair<int, int>> arguments) {
    Step step;
    step.primitive = primitive;
    const auto add = [&](int name, int number) {
        step.arguments.at(static_cast<std::size_t>(step.count++)) = {
            name, operands_[static_cast<std::size_t>(number)].memory.get()};
    };
    for (const auto& [name, number] : arguments) add(name, number);
    if (scratchpad.get_size() > 0) add(DNNL_ARG_SCRATCHPAD, temporary(library, scratchpad));
    steps_.push_back(step);
}

void Plan::run(const OneDnn& library, std::span<void* const> pointers, void* scratch) {
    for (Operand& operand : operands_)
        operand.memory.set_data_handle(operand.slot >= 0 ? pointers[static_cast<std::size_t>(operand.slot)]
                                                         : static_cast<std::byte*>(scratch) + operand.offset);
    for (const Step& step : steps_)
        check(dnnl_primitive_execute(step.primitive.get(), library.stream.get(), step.count,
                                     step.arguments.data()));
}

Plan make_plan(const char* what, const std::function<Plan()>& build) {
    try {
        return build();
    } catch (const dnnl::error& error) {
        throw failure(std::string("oneDNN has no ") + what + ": " + error.what());
    }
}

}  // namespace trireme::cpu
