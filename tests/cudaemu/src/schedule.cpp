// Which stream runs next, and for how long.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "call.hpp"
#include "capture.hpp"
#include "machine.hpp"
#include "mail.hpp"
#include "options.hpp"
#include "patience.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

using namespace std::chrono_literals;

bool blocked(cudaStream_t s) {
    return s->queue.front().needs && !s->queue.front().needs->reached;
}

bool runnable(cudaStream_t s) {
    return !s->queue.empty() && !s->busy && !blocked(s);
}

void reach(Mark& mark) {
    mark.reached = true;
    mark.time = std::chrono::steady_clock::now();
    san::release(&mark);
}

// The device whose memory stays open from one operation to the next, since opening takes time that grows with
// the memory: until the program goes on, or other threads may.
std::optional<Access> held;
int held_device = -1;

void hold(int device) {
    if (held && held_device == device) return;
    held.reset();
    held.emplace(device);
    held_device = device;
}

// Runs the first operation of a stream.
Progress step(cudaStream_t s) {
    const san::Aside aside;
    hold(s->device);
    Op op = std::move(s->queue.front());  // freed by the host, so that freeing orders no streams
    Progress progress = Progress::done;
    s->busy = true;
    {
        const bool lost = devices()[static_cast<std::size_t>(s->device)]->lost != cudaSuccess;
        const san::Acting stream(s->actor);
        const san::Aside mechanics;
        san::acquire(op.ticket.get());
        if (op.needs) san::acquire(op.needs.get());
        if (op.run && !lost) progress = op.run();
        if (progress == Progress::done && op.sets) reach(*op.sets);
        san::release(s);
    }
    s->busy = false;
    if (progress != Progress::done) {
        s->queue.front() = std::move(op);
        return progress;
    }
    s->queue.pop_front();
    if (s->abandoned && s->queue.empty()) bury(s);
    return progress;
}

cudaStream_t choose(cudaStream_t toward) {
    std::vector<cudaStream_t> can;
    std::ranges::copy_if(streams(), std::back_inserter(can), runnable);
    if (can.empty()) return nullptr;
    switch (options().streams) {
        case Streams::shuffled:
            return can[dice()() % can.size()];
        case Streams::others_first:
            for (const cudaStream_t s : can) {
                if (s != toward) return s;
            }
            return can.front();
        case Streams::lazy:
        case Streams::eager:
            break;
    }
    if (toward == nullptr || toward->queue.empty()) return can.front();
    while (!toward->queue.empty() && blocked(toward)) toward = toward->queue.front().needs->stream;
    return std::ranges::find(can, toward) != can.end() ? toward : can.front();
}

// A step of each stream but one, which waits for other ranks, which may wait for what these have to send.
bool step_others(cudaStream_t but) {
    bool moved = false;
    for (const cudaStream_t s : std::vector(streams())) {
        const bool alive = std::ranges::find(streams(), s) != streams().end();
        if (s != but && alive && runnable(s)) moved |= step(s) != Progress::waiting;
    }
    return moved;
}

bool any_busy() {
    return std::ranges::any_of(streams(), [](cudaStream_t s) { return s->busy; });
}

}  // namespace

std::vector<cudaStream_t>& streams() {
    static std::vector<cudaStream_t>& all = *new std::vector<cudaStream_t>;
    return all;
}

void bury(cudaStream_t s) {
    {
        const san::Acting stream(s->actor);
        san::release(devices()[static_cast<std::size_t>(s->device)].get());  // for who waits for the device
    }
    std::erase(streams(), s);
    retire(s->actor);
    delete s;
}

void drive(const std::function<bool()>& done, cudaStream_t toward, const char* why) {
    const san::Aside aside;
    Patience patience(why);
    while (!done()) {
        const cudaStream_t s = choose(toward);
        if (s == nullptr && !any_busy()) {
            std::fprintf(stderr, "cudaemu: %s waits for work that was never queued\n", why);
            std::abort();
        }
        // The later the others run, the more they show.
        const bool moved =
            (s != nullptr && step(s) != Progress::waiting) || (patience.over(2ms) && step_others(s));
        if (moved) {
            patience.moved();
        } else {
            let_go();
            patience.idle();
        }
    }
    let_go();
}

bool poke(cudaStream_t toward) {
    // A program that waits by asking again and again: as in drive().
    static thread_local cudaStream_t last = nullptr;
    static thread_local std::chrono::steady_clock::time_point moved_at;
    const auto now = std::chrono::steady_clock::now();
    if (std::exchange(last, toward) != toward) moved_at = now;
    const cudaStream_t s = choose(toward);
    const bool moved =
        (s != nullptr && step(s) != Progress::waiting) || (now - moved_at > 2ms && step_others(s));
    if (moved) moved_at = now;
    let_go();
    return moved;
}

void let_go() {
    held.reset();
}

void work_a_little() {
    const Lock lock;
    const san::Aside aside;
    mail::collect();
    step_others(nullptr);
    let_go();
}

void drain(cudaStream_t s) {
    drive([s] { return s->queue.empty(); }, s, "the wait for a stream");
    san::acquire(s);
}

void drain_device(int device) {
    const auto idle = [device](cudaStream_t s) { return s->device != device || s->queue.empty(); };
    drive([&] { return std::ranges::all_of(streams(), idle); }, nullptr, "the wait for a device");
    san::acquire(devices()[static_cast<std::size_t>(device)].get());
    for (const cudaStream_t s : streams()) {
        if (s->device == device) san::acquire(s);
    }
}

void enqueue(cudaStream_t stream, Op op) {
    op.ticket = std::make_shared<char>();
    san::release(op.ticket.get());  // the work sees what the host did before
    stream->queue.push_back(std::move(op));
}

void run_if_eager(cudaStream_t stream) {
    if (options().streams != Streams::eager) return;
    while (!stream->queue.empty() && (runnable(stream) ? step(stream) != Progress::waiting : poke(stream))) {
    }
    let_go();
}

Work work(NodeKind kind, int device, std::function<std::string()> describe, std::function<void()> run) {
    Op op;
    op.run = [device, run = std::move(run)] {
        const Access access(device);
        run();
        return Progress::done;
    };
    op.describe = describe;
    return {kind, std::move(describe), [op] { return op; }};
}

cudaError_t submit(cudaStream_t stream, Work work) {
    if (stream == nullptr || stream == cudaStreamLegacy || stream == cudaStreamPerThread) {
        return default_stream();
    }
    if (stream->capture) return capture(stream, std::move(work));
    enqueue(stream, work.make());
    run_if_eager(stream);
    return cudaSuccess;
}

std::string what_streams_wait_for() {
    std::string text;
    for (const cudaStream_t s : streams()) {
        if (s->queue.empty()) continue;
        const Op& op = s->queue.front();
        text += "  device " + std::to_string(s->device) + ", stream " + std::to_string(s->number) + ": ";
        if (s->busy) {
            text += "is running something";
        } else {
            text += op.describe ? op.describe() : "an event";
            if (blocked(s)) {
                text += ", which waits for an event on stream " + std::to_string(op.needs->stream->number);
            }
        }
        if (s->queue.size() > 1) text += "; then " + std::to_string(s->queue.size() - 1) + " more";
        text += '\n';
    }
    return text.empty() ? "  no stream has anything left to do\n" : text;
}

void Patience::idle() {
    {
        const bool locked = Lock::held();
        std::optional<Unlocked> open;
        if (locked) open.emplace();
        if (over(5ms)) {
            std::this_thread::sleep_for(100us);
        } else {
            sched_yield();
        }
    }
    if (reported_ || std::chrono::duration<double>(Clock::now() - since_).count() < options().hang_seconds) {
        return;
    }
    reported_ = true;
    const Lock lock;
    std::fprintf(stderr, "cudaemu: rank %d: nothing has moved for %g s in %s\n%s", mail::process(),
                 options().hang_seconds, why_, what_streams_wait_for().c_str());
}

}  // namespace trireme::cudaemu
