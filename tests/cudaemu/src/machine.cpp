#include "machine.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <utility>

#include "options.hpp"
#include "symbols.hpp"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace trireme::cudaemu {
namespace {

constexpr std::size_t blocks_apart = 2;
constexpr std::size_t most_actors = 4200;  // the race detector takes 8191, but its clocks grow with them

std::size_t product(dim3 d) {
    return std::size_t{d.x} * d.y * d.z;
}

uint3 coordinates(std::size_t i, dim3 d) {
    return {static_cast<unsigned>(i % d.x), static_cast<unsigned>(i / d.x % d.y),
            static_cast<unsigned>(i / d.x / d.y)};
}

[[noreturn]] void deadlock() {
    Machine& m = machine();
    std::fprintf(stderr, "cudaemu: block (%u,%u,%u) of %s is stuck: of %zu threads %u ended;", blockIdx.x,
                 blockIdx.y, blockIdx.z, name(m.launch.kernel).c_str(), m.threads.size(),
                 static_cast<unsigned>(m.threads.size()) - m.live);
    for (unsigned t = 0; t < m.threads.size(); ++t) {
        if (m.threads[t].waits_at == nullptr) continue;
        std::fprintf(stderr, " thread %u waits at %s:%u", t, m.threads[t].waits_at->file,
                     m.threads[t].waits_at->line);
        break;
    }
    std::fputc('\n', stderr);
    std::abort();
}

// From the current fiber to a thread that has begun.
void go(unsigned t) {
    Machine& m = machine();
    Fiber& from = *m.fiber;
    m.fiber = m.threads[t].fiber;
    m.fiber->resume(from);
}

void enter(unsigned t) {
    Machine& m = machine();
    m.current = t;
    threadIdx = m.threads[t].index;
    m.threads[t].waits_at = nullptr;
    if (san::races()) san::become(m.cast->actors[m.first + t]);
    san::watch();
}

unsigned starting = none;

// What a fiber does: one thread after another, until none is ready.
void worker() {
    Machine& m = machine();
    for (;;) {
        unsigned t = std::exchange(starting, none);
        if (t == none) t = pick();
        if (t == none) {
            if (m.live != 0) deadlock();
            Fiber& self = *m.fiber;
            if (!san::races()) m.pool.put(&self);
            m.fiber = &m.main;
            m.main.resume(self);
            continue;
        }
        Thread& thread = m.threads[t];
        if (thread.fiber != nullptr) {
            if (!san::races()) m.pool.put(m.fiber);
            go(t);
            continue;
        }
        if (san::races()) {
            if (m.cast->stacks[m.first + t].get() != m.fiber) {  // each thread keeps its stack
                starting = t;
                Fiber& self = *m.fiber;
                m.fiber = m.cast->stacks[m.first + t].get();
                m.fiber->resume(self);
                continue;
            }
        }
        thread.fiber = m.fiber;
        enter(t);
        san::acquire(m.began);
        m.launch.body(m.launch.bound);
        san::release(m.ended);
        san::unwatch();
        thread.done = true;
        thread.fiber = nullptr;
        --m.live;
    }
}

void dismiss(Cast& cast) {
    for (void* actor : cast.actors) {
        {
            const san::Acting thread(actor);
            san::watch();
        }
        san::retire(actor);
    }
    cast = {};
}

// Makes room for so many actors: casts without a stream leave first, then those that were not used for
// longest.
void make_room(Machine& m, std::size_t needed) {
    for (;;) {
        std::size_t others = 0;
        Cast* first = nullptr;
        for (auto& [stream, cast] : m.casts) {
            if (&cast == m.cast || cast.actors.empty()) continue;
            others += cast.actors.size();
            if (first == nullptr || cast.used < first->used) first = &cast;
        }
        for (Cast& cast : m.spare) others += cast.actors.size();
        if (others + needed <= most_actors) return;
        if (!m.spare.empty()) {
            dismiss(m.spare.back());
            m.spare.pop_back();
        } else if (first != nullptr) {
            dismiss(*first);
        } else {
            return;
        }
    }
}

// Those who act in this launch. Making one takes most of a millisecond, so that they outlive their streams.
void prepare_cast(Machine& m) {
    m.cast = &m.casts[san::current_actor()];
    if (m.cast->actors.empty() && !m.spare.empty()) {
        *m.cast = std::move(m.spare.back());
        m.spare.pop_back();
    }
    m.cast->used = ++m.launches;
    m.first = 0;
    const std::size_t needed = std::max(m.cast->actors.size(), blocks_apart * m.threads.size());
    make_room(m, needed);
    while (m.cast->actors.size() < needed) {
        m.cast->stacks.push_back(std::make_unique<Fiber>(worker));
        m.cast->actors.push_back(san::actor());
        const san::Acting thread(m.cast->actors.back());
        san::unwatch();  // until it is entered
    }
}

std::vector<std::size_t> order_of_blocks(dim3 grid) {
    std::vector<std::size_t> blocks(product(grid));
    std::iota(blocks.begin(), blocks.end(), std::size_t{0});
    if (options().threads == Order::reverse) std::ranges::reverse(blocks);
    if (options().threads == Order::shuffled) std::ranges::shuffle(blocks, dice());
    return blocks;
}

void run_block(Machine& m, std::size_t b) {
    if (san::races()) m.first = m.first != 0 ? 0 : m.threads.size();
    san::renew_shared();
    blockIdx = coordinates(b, m.launch.grid);
    for (std::size_t t = 0; t < m.threads.size(); ++t) {
        m.threads[t] = {coordinates(t, m.launch.block), nullptr, false, nullptr};
    }
    for (auto& warp : m.warps) warp.clear();
    const std::size_t bytes = m.launch.shared_bytes;
    m.shared = bytes != 0 ? std::make_unique_for_overwrite<std::byte[]>(bytes) : nullptr;
    std::fill_n(m.shared.get(), bytes, std::byte{0xff});  // NaN
    m.live = static_cast<unsigned>(m.threads.size());
    m.arrived = m.round = 0;
    m.ready.resize(m.threads.size());
    std::iota(m.ready.begin(), m.ready.end(), 0u);
    push_ready(m.ready, 0);
    m.fiber = san::races() ? m.cast->stacks[m.first].get() : m.pool.get();
    m.fiber->resume(m.main);
}

}  // namespace

Fiber* Pool::get() {
    if (free_.empty()) free_.push_back(all_.emplace_back(std::make_unique<Fiber>(worker)).get());
    Fiber* f = free_.back();
    free_.pop_back();
    return f;
}

Machine& machine() {
    static Machine& m = *new Machine;
    return m;
}

void retire(void* actor) {
    const auto found = machine().casts.find(actor);
    if (found != machine().casts.end()) {
        if (!found->second.actors.empty()) machine().spare.push_back(std::move(found->second));
        machine().casts.erase(found);
    }
    san::retire(actor);
}

std::string name(const void* kernel) {
    const std::string text = symbol(kernel);
    return text.empty() ? "an unknown kernel" : "kernel " + text;
}

void push_ready(std::vector<unsigned>& ready, unsigned from) {
    const auto begin = ready.begin() + from;
    switch (options().threads) {
        case Order::forward:
            std::sort(begin, ready.end(), std::greater<>());
            break;
        case Order::reverse:
            std::sort(begin, ready.end());
            break;
        case Order::shuffled:
            std::shuffle(begin, ready.end(), dice());
            break;
    }
}

unsigned pick() {
    Machine& m = machine();
    if (m.ready.empty()) return none;
    if (options().threads == Order::shuffled) {
        std::swap(m.ready.back(), m.ready[dice()() % m.ready.size()]);
    }
    const unsigned t = m.ready.back();
    m.ready.pop_back();
    return t;
}

void wait() {
    Machine& m = machine();
    const unsigned self = m.current;
    const unsigned t = pick();
    if (t == none) deadlock();
    if (t != self && m.threads[t].fiber != nullptr) {
        go(t);
    } else if (t != self) {
        starting = t;
        Fiber& from = *m.fiber;
        m.fiber = san::races() ? m.cast->stacks[m.first + t].get() : m.pool.get();
        m.fiber->resume(from);
    }
    enter(self);
}

void run(const Launch& launch) {
    Machine& m = machine();
    m.places.renew();
    m.began = m.places.next();
    m.ended = m.places.next();
    m.fenced = m.places.next();
    san::release(m.began);
    {
        const san::Aside aside;
        const san::Acting stream(san::current_actor());  // again, after the threads
        m.launch = launch;
        m.threads.resize(product(launch.block));
        m.warps.resize((m.threads.size() + 31) / 32);
        blockDim = launch.block;
        gridDim = launch.grid;
        if (san::races()) prepare_cast(m);
        for (const std::size_t b : order_of_blocks(launch.grid)) run_block(m, b);
        m.shared.reset();
    }
    san::acquire(m.ended);
}

}  // namespace trireme::cudaemu
