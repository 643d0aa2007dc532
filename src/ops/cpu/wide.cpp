#include "ops/cpu/wide.hpp"

#include "ops/cpu/parallel.hpp"

namespace trireme::cpu {

void Wide::load(int threads) const {
    if (own_.is_float()) return;
    for_blocks(threads, count_, count_, element_block,
               [this](std::int64_t, std::int64_t begin, std::int64_t end) {
                   widen(own_.type(), own_.at(first_ + begin), floats_ + begin, end - begin);
               });
}

void Wide::store(int threads) const {
    if (own_.is_float()) return;
    for_blocks(threads, count_, count_, element_block,
               [this](std::int64_t, std::int64_t begin, std::int64_t end) {
                   narrow(own_.type(), floats_ + begin, own_.at(first_ + begin), end - begin);
               });
}

void Wide::place(Scratch& scratch, std::initializer_list<Wide*> tensors) {
    constexpr std::int64_t cache_line = 16;
    const auto space = [](const Wide& tensor) {
        return tensor.own_.is_float() ? 0 : (tensor.count_ + cache_line - 1) / cache_line * cache_line;
    };
    std::int64_t total = 0;
    for (const Wide* tensor : tensors) total += space(*tensor);
    float* next = total > 0 ? scratch.reserve_of<float>(static_cast<std::size_t>(total)) : nullptr;
    for (Wide* tensor : tensors) {
        tensor->floats_ = tensor->own_.is_float() ? static_cast<float*>(tensor->own()) : next;
        next += space(*tensor);
    }
}

void require_product_types(std::string_view verb, DType a, DType b, DType result) {
    if (a == b && (result == a || result == DType::f32)) return;
    throw failure("cpu " + std::string(verb) + ": " + std::string(name_of(a)) + " by " +
                  std::string(name_of(b)) + " into " + std::string(name_of(result)) +
                  ", expected operands of one type and a result of that or float32");
}

}  // namespace trireme::cpu
