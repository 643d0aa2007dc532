#include "lock.hpp"

#include <sched.h>

#include <atomic>

namespace trireme::cudaemu {
namespace {

std::atomic<const void*> owner = nullptr;
int depth = 0;

const void* self() {
    static thread_local char me;
    return &me;
}

void take() {
    for (const void* nobody = nullptr;
         !owner.compare_exchange_weak(nobody, self(), std::memory_order_acquire); nobody = nullptr) {
        sched_yield();
    }
}

}  // namespace

Lock::Lock() {
    if (owner.load(std::memory_order_relaxed) != self()) take();
    ++depth;
}

Lock::~Lock() {
    if (--depth == 0) owner.store(nullptr, std::memory_order_release);
}

bool Lock::held() {
    return owner.load(std::memory_order_relaxed) == self();
}

Unlocked::Unlocked() : depth_(depth) {
    depth = 0;
    owner.store(nullptr, std::memory_order_release);
}

Unlocked::~Unlocked() {
    take();
    depth = depth_;
}

}  // namespace trireme::cudaemu
