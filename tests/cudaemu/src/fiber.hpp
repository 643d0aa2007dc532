// Stacks that hand control to each other.
#pragma once

#include <cstddef>

namespace trireme::cudaemu {

class Fiber {
public:
    Fiber() = default;  // the caller's own stack
    explicit Fiber(void (*entry)());
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Leaves `from` and goes on where this one stopped.
    void resume(Fiber& from);

private:
    static void start();

    void* sp_ = nullptr;
    void (*entry_)() = nullptr;
    std::byte* stack_ = nullptr;
    const void* bottom_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace trireme::cudaemu
