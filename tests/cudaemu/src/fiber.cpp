#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#include "sanitizer.hpp"

namespace trireme::cudaemu {
namespace {

constexpr std::size_t page = 4096;
// Instrumented code takes more.
std::size_t stack_size() {
    return (san::races() || san::addresses() ? 256 : 64) * std::size_t{1024};
}

Fiber* leaving = nullptr;
Fiber* entering = nullptr;

// swapcontext would do, but it makes two system calls, which cost 80 times as much as the switch.
extern "C" void trireme_cudaemu_switch(void** save, void* load);
asm(R"(
.text
.globl trireme_cudaemu_switch
.type trireme_cudaemu_switch, @function
trireme_cudaemu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size trireme_cudaemu_switch, .-trireme_cudaemu_switch
)");

}  // namespace

Fiber::Fiber(void (*entry)()) : entry_(entry), size_(stack_size()) {
    void* p = mmap(nullptr, page + size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, page, PROT_NONE);  // an overflow stops here
    stack_ = static_cast<std::byte*>(p);
    bottom_ = stack_ + page;
    auto* top = reinterpret_cast<std::uint64_t*>(stack_ + page + size_);
    *--top = 0;  // keeps the stack at 8 modulo 16 on entry, as after a call
    *--top = reinterpret_cast<std::uint64_t>(&Fiber::start);
    for (int i = 0; i < 6; ++i) *--top = 0;
    sp_ = top;
}

Fiber::~Fiber() {
    if (stack_ == nullptr) return;
    san::allow(stack_, page + size_);
    munmap(stack_, page + size_);
}

void Fiber::start() {
    san::arrive(nullptr, &leaving->bottom_, &leaving->size_);
    entering->entry_();
    __builtin_trap();
}

void Fiber::resume(Fiber& from) {
    if (this == &from) return;
    leaving = &from;
    entering = this;
    void* fake = nullptr;
    san::leave(&fake, bottom_, size_);
    trireme_cudaemu_switch(&from.sp_, sp_);
    san::arrive(fake, &leaving->bottom_, &leaving->size_);
}

}  // namespace trireme::cudaemu
