// Where threads of a kernel meet: the block's barrier and the exchanges of a warp.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <set>
#include <string>
#include <string_view>

#include "machine.hpp"
#include "options.hpp"

namespace trireme::cudaemu {
namespace {

std::string text(Site at) {
    const std::string_view path = at.file;
    return std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(at.line);
}

// Barriers as the objects of mutation: each can be listed, and each left out.
bool dropped(Site at) {
    static const bool mutating = options().list_barriers || !options().drop_barrier.empty();
    if (!mutating) return false;
    const san::Aside aside;
    static std::set<std::string>& met = *new std::set<std::string>;
    if (options().list_barriers && met.empty()) {
        std::atexit([] {
            for (const auto& site : met) std::fprintf(stderr, "cudaemu: barrier %s\n", site.c_str());
        });
    }
    met.insert(text(at));
    return text(at) == options().drop_barrier;
}

Meeting& meeting_of(std::deque<Meeting>& warp, unsigned mask) {
    const auto found = std::ranges::find(warp, mask, &Meeting::mask);
    if (found != warp.end()) return *found;
    const san::Aside aside;
    warp.push_back({});
    warp.back().mask = mask;
    return warp.back();
}

// All lanes of the mask put in their values; these are then everyone's to read until the lane's next
// exchange.
const std::array<std::uint64_t, 32>& exchange(unsigned mask, std::uint64_t value, const Site& at) {
    Machine& m = machine();
    const unsigned self = m.current, warp = self / 32;
    const unsigned width = std::min(32u, static_cast<unsigned>(m.threads.size()) - warp * 32);
    if ((mask >> lane() & 1u) == 0) fault("a lane calls a warp function without being in its mask", at);
    if (width < 32 && mask != ~0u && mask >> width != 0) {
        fault("a mask names lanes that the block does not have", at);
    }
    if (width < 32) mask &= (1u << width) - 1;  // a full mask means those that exist
    Meeting& meeting = meeting_of(m.warps[warp], mask);
    const unsigned round = meeting.round;
    if (meeting.arrived == 0) {
        meeting.site = at;
        meeting.place[round % 2] = m.places.next();
    } else if (at != meeting.site) {
        fault("lanes of a mask meet at different warp functions", at);
    }
    meeting.value[round % 2][static_cast<std::size_t>(lane())] = value;
    meeting.arrived |= 1u << lane();
    m.threads[self].waits_at = &at;
    rendezvous(meeting.place[round % 2], [&] {
        if (meeting.arrived != mask) return;
        meeting.arrived = 0;
        ++meeting.round;
        const auto from = static_cast<unsigned>(m.ready.size());
        for (unsigned l = 0; l < 32; ++l) {
            if ((mask >> l & 1u) != 0) m.ready.push_back(warp * 32 + l);
        }
        push_ready(m.ready, from);
    });
    return meeting.value[round % 2];
}

}  // namespace

[[noreturn]] void fault(const char* what, Site at) {
    std::fprintf(stderr, "cudaemu: %s:%u: %s in thread (%u,%u,%u) of block (%u,%u,%u) of %s\n", at.file,
                 at.line, what, threadIdx.x, threadIdx.y, threadIdx.z, blockIdx.x, blockIdx.y, blockIdx.z,
                 name(machine().launch.kernel).c_str());
    std::abort();
}

int block_barrier(Vote vote, bool yes, Site at) {
    if (dropped(at)) return yes ? 1 : 0;
    Machine& m = machine();
    const unsigned round = m.round;
    if (m.arrived == 0) {
        m.site = at;
        m.votes = 0;
        m.place[round % 2] = m.places.next();
    } else if (at != m.site) {
        fault("threads of a block meet at different barriers", at);
    }
    m.votes += yes ? 1 : 0;
    m.threads[m.current].waits_at = &at;
    // A thread that ended cannot come: then the others are stuck, and that is told.
    const bool last = ++m.arrived == m.threads.size();
    rendezvous(m.place[round % 2], [&] {
        if (!last) return;
        m.verdict = m.votes;
        m.arrived = 0;
        ++m.round;
        m.ready.resize(m.threads.size());
        std::iota(m.ready.begin(), m.ready.end(), 0u);
        push_ready(m.ready, 0);
    });
    switch (vote) {
        case Vote::any:
            return m.verdict > 0 ? 1 : 0;
        case Vote::all:
            return m.verdict == static_cast<int>(m.threads.size()) ? 1 : 0;
        case Vote::count:
            return m.verdict;
        case Vote::none:
            break;
    }
    return 0;
}

int lane() {
    return static_cast<int>(machine().current % 32);
}

std::uint64_t shuffle(unsigned mask, std::uint64_t value, int from, Site at) {
    const auto& values = exchange(mask, value, at);
    if ((mask >> from & 1u) == 0) fault("a shuffle reads from a lane that is not in its mask", at);
    return values[static_cast<std::size_t>(from)];
}

unsigned ballot(unsigned mask, bool yes, Site at) {
    const auto& values = exchange(mask, yes ? 1 : 0, at);
    unsigned votes = 0;
    for (unsigned l = 0; l < 32; ++l) {
        if ((mask >> l & 1u) != 0 && values[l] != 0) votes |= 1u << l;
    }
    return votes;
}

void* dynamic_shared() {
    return machine().shared.get();
}

void fence() {
    san::release(machine().fenced);
    san::acquire(machine().fenced);
}

}  // namespace trireme::cudaemu
