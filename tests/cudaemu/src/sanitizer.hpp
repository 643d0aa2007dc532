// The sanitizers' hooks, which do nothing in a program that has none. Streams, and threads of a kernel, are
// actors to the race detector: each has a clock of its own, and only what the program orders is ordered. The
// emulation itself is compiled without -fsanitize=thread, so that it neither is watched nor orders anything.
#pragma once

#include <cstddef>

// Declared here, weak, instead of by the sanitizers' headers: one build of the emulation serves all programs.
extern "C" {
[[gnu::weak]] void* __tsan_create_fiber(unsigned);
[[gnu::weak]] void __tsan_destroy_fiber(void*);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_switch_to_fiber(void*, unsigned);
[[gnu::weak]] void __tsan_acquire(void*);
[[gnu::weak]] void __tsan_release(void*);
[[gnu::weak]] void __tsan_read_range(void*, unsigned long);
[[gnu::weak]] void __tsan_write_range(void*, unsigned long);
[[gnu::weak]] void AnnotateIgnoreReadsBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreReadsEnd(const char*, int);
[[gnu::weak]] void AnnotateIgnoreWritesBegin(const char*, int);
[[gnu::weak]] void AnnotateIgnoreWritesEnd(const char*, int);
[[gnu::weak]] void __tsan_java_init(unsigned long, unsigned long);
[[gnu::weak]] void __tsan_java_alloc(unsigned long, unsigned long);
[[gnu::weak]] void __asan_poison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void*, std::size_t);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void**, const void*, std::size_t);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void*, const void**, std::size_t*);
extern char __bss_start, _end;  // the program's variables without a value, shared memory among them
}

namespace trireme::cudaemu::san {

inline bool races() {
    return &__tsan_acquire != nullptr;
}
inline bool addresses() {
    return &__asan_poison_memory_region != nullptr;
}

inline void unwatch() {
    if (!races()) return;
    AnnotateIgnoreReadsBegin("", 0);
    AnnotateIgnoreWritesBegin("", 0);
}
inline void watch() {
    if (!races()) return;
    AnnotateIgnoreWritesEnd("", 0);
    AnnotateIgnoreReadsEnd("", 0);
}
inline void* actor() {
    return races() ? __tsan_create_fiber(0) : nullptr;
}
inline void retire(void* actor) {
    if (races()) __tsan_destroy_fiber(actor);
}
inline void* current_actor() {
    return races() ? __tsan_get_current_fiber() : nullptr;
}
inline void become(void* actor) {
    constexpr unsigned without_order = 1;
    if (races()) __tsan_switch_to_fiber(actor, without_order);
}
inline void acquire(const void* at) {
    if (races()) __tsan_acquire(const_cast<void*>(at));
}
inline void release(const void* at) {
    if (races()) __tsan_release(const_cast<void*>(at));
}
// What an operation touches; itself it runs unwatched.
inline void reads(const void* p, std::size_t n) {
    if (!races() || n == 0) return;
    watch();
    __tsan_read_range(const_cast<void*>(p), n);
    unwatch();
}
inline void writes(void* p, std::size_t n) {
    if (!races() || n == 0) return;
    watch();
    __tsan_write_range(p, n);
    unwatch();
}
// The next block's shared memory is other memory than this one's.
inline void renew_shared() {
    if (!races()) return;
    const auto begin = (reinterpret_cast<unsigned long>(&__bss_start) + 7) / 8 * 8;
    const auto end = reinterpret_cast<unsigned long>(&_end) / 8 * 8;
    static const bool once = (__tsan_java_init(begin, end - begin), true);
    static_cast<void>(once);
    __tsan_java_alloc(begin, end - begin);
}

inline void forbid(const void* p, std::size_t n) {
    if (addresses()) __asan_poison_memory_region(p, n);
}
inline void allow(const void* p, std::size_t n) {
    if (addresses()) __asan_unpoison_memory_region(p, n);
}
inline void leave(void** fake, const void* bottom, std::size_t size) {
    if (addresses()) __sanitizer_start_switch_fiber(fake, bottom, size);
}
inline void arrive(void* fake, const void** bottom, std::size_t* size) {
    if (addresses()) __sanitizer_finish_switch_fiber(fake, bottom, size);
}

// While one lives, what its maker does is the emulation's own affair and no part of the program that is
// watched.
class Aside {
public:
    Aside() { unwatch(); }
    ~Aside() { watch(); }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;
};

class Acting {
public:
    explicit Acting(void* as) : before_(current_actor()) { become(as); }
    ~Acting() { become(before_); }
    Acting(const Acting&) = delete;
    Acting& operator=(const Acting&) = delete;

private:
    void* before_;
};

}  // namespace trireme::cudaemu::san
