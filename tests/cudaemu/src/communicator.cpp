#include "communicator.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "capture.hpp"
#include "mail.hpp"
#include "patience.hpp"
#include "stream.hpp"

namespace trireme::cudaemu {
namespace {

using mail::Kind;

struct Identity {
    std::uint64_t magic = 0x74726972656d65, serial = 0;
    std::int32_t root = 0;
};

struct Member {
    std::int32_t rank = 0, size = 0, process = 0, device = 0;
    std::uint64_t host = 0;
};

struct Vote {
    std::int32_t color = 0, key = 0;
};

std::string& last_message() {
    static std::string& text = *new std::string;
    return text;
}

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    a ^= b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2);
    a = (a ^ (a >> 30)) * 0xbf58476d1ce4e5b9u;
    a = (a ^ (a >> 27)) * 0x94d049bb133111ebu;
    return a ^ (a >> 31);
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
}

template <class T>
std::vector<T> values_of(const std::vector<std::byte>& bytes) {
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
}

std::uint64_t host() {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    return std::hash<std::string_view>{}(name);
}

// In the process that made the identifier: gathers those who join, and tells all when the last has come. An
// answer without a list is a refusal.
void serve(mail::Letter letter) {
    static auto& lobby = *new std::map<std::uint64_t, std::vector<Member>>;
    const std::uint64_t id = letter.key.communicator;
    auto& members = lobby[id];
    members.push_back(values_of<Member>(letter.body).at(0));
    const auto size = static_cast<std::size_t>(members.front().size);
    if (members.size() < size) return;
    std::set<int> ranks;
    std::set<std::pair<std::uint64_t, int>> distinct;
    std::vector<int> process(size);
    for (const Member& m : members) {
        if (m.size == members.front().size) ranks.insert(m.rank);
        distinct.emplace(m.host, m.device);
        process[static_cast<std::size_t>(m.rank)] = m.process;
    }
    if (ranks.size() != size || distinct.size() != size) process.clear();
    for (const Member& m : members) {
        mail::post(m.process, {{id, 0, Kind::welcome, 0, m.rank}, {}, bytes_of(process)});
    }
    lobby.erase(id);
}

void open_lobby() {
    static const bool once = (mail::on_join(serve), true);
    static_cast<void>(once);
}

std::shared_ptr<Communicator> join(int size, const Identity& who, int rank, bool blocking) {
    auto c = std::make_shared<Communicator>();
    c->id = mix(static_cast<std::uint64_t>(who.root) + 1, who.serial);
    c->rank = rank;
    c->size = size;
    c->device = current_device();
    c->blocking = blocking;
    c->state = ncclInProgress;
    c->pending = [state = c.get()]() -> ncclResult_t {
        mail::collect();
        const auto answer = mail::take({state->id, 0, Kind::welcome, 0, state->rank});
        if (!answer) return ncclInProgress;
        state->process = values_of<int>(answer->body);
        if (!state->process.empty()) return ncclSuccess;
        return fail(ncclInvalidUsage, "two ranks of the communicator share a device, or a rank");
    };
    const Member me{rank, size, mail::process(), device().number, host()};
    mail::post(who.root, {{c->id, 0, Kind::join, rank, 0}, {}, bytes_of(std::vector{me})});
    return c;
}

// When all ranks of the parent have told their color: those of one's own, ordered by key.
std::optional<std::vector<int>> members(const Communicator& parent, std::uint64_t round, int color) {
    mail::collect();
    for (int r = 0; r < parent.size; ++r) {
        if (!mail::has({parent.id, round, Kind::split, r, parent.rank})) return std::nullopt;
    }
    std::vector<Vote> votes;
    std::vector<int> ranks;
    for (int r = 0; r < parent.size; ++r) {
        const auto letter = mail::take({parent.id, round, Kind::split, r, parent.rank});
        votes.push_back(values_of<Vote>(letter->body).at(0));
        if (votes.back().color == color) ranks.push_back(r);
    }
    std::ranges::stable_sort(ranks, {}, [&](int r) { return votes[static_cast<std::size_t>(r)].key; });
    return ranks;
}

std::shared_ptr<Communicator> split(const std::shared_ptr<Communicator>& parent, int color, int key) {
    const std::uint64_t round = parent->splits++;
    for (int r = 0; r < parent->size; ++r) {
        mail::post(
            parent->process[static_cast<std::size_t>(r)],
            {{parent->id, round, Kind::split, parent->rank, r}, {}, bytes_of(std::vector{Vote{color, key}})});
    }
    auto c = std::make_shared<Communicator>();
    c->id = mix(mix(parent->id, round + 1), static_cast<std::uint64_t>(color) + 1);
    c->device = parent->device;
    c->blocking = parent->blocking;
    c->state = ncclInProgress;
    c->pending = [state = c.get(), parent, round, color]() -> ncclResult_t {
        const auto ranks = members(*parent, round, color);
        if (!ranks) return ncclInProgress;
        state->size = static_cast<int>(ranks->size());
        for (const int r : *ranks) state->process.push_back(parent->process[static_cast<std::size_t>(r)]);
        state->rank = static_cast<int>(std::ranges::find(*ranks, parent->rank) - ranks->begin());
        return ncclSuccess;
    };
    return c;
}

bool blocking_in(const ncclConfig_t* config, bool otherwise) {
    return config == nullptr || config->blocking == NCCL_CONFIG_UNDEF_INT ? otherwise : config->blocking != 0;
}

bool usable(const ncclConfig_t* config) {
    return config == nullptr || config->magic == 0xcafebeef;
}

// Hands out a communicator that others have to agree to first.
ncclResult_t begin(std::shared_ptr<Communicator> c, ncclComm_t* out, const char* why) {
    auto* handle = new ncclComm{c};
    *out = handle;
    if (in_group()) {
        join_later(std::move(c));
        return ncclSuccess;
    }
    if (!c->blocking) return ncclInProgress;
    const ncclResult_t result = settle(c, why);
    if (result == ncclSuccess) return result;
    delete handle;
    *out = nullptr;
    return result;
}

}  // namespace

ncclResult_t fail(ncclResult_t result, std::string message) {
    last_message() = std::move(message);
    return result;
}

ncclResult_t advance(Communicator& c) {
    if (c.state != ncclInProgress || !c.pending) return c.state;
    const auto pending = c.pending;  // which may be replaced while it runs
    c.state = pending();
    if (c.state != ncclInProgress) c.pending = nullptr;
    return c.state;
}

ncclResult_t settle(const std::shared_ptr<Communicator>& c, const char* why) {
    Patience patience(why);
    while (advance(*c) == ncclInProgress && !c->aborted) {
        if (patience.over(std::chrono::milliseconds(10))) work_a_little();
        patience.idle();
    }
    return c->aborted ? ncclInvalidUsage : c->state;
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclUnhandledCudaError:
            return "unhandled cuda error";
        case ncclSystemError:
            return "unhandled system error";
        case ncclInternalError:
            return "internal error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInvalidUsage:
            return "invalid usage";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInProgress:
            return "NCCL operation in progress";
        default:
            return "unknown result code";
    }
}

const char* ncclGetLastError(ncclComm_t) {
    return last_message().c_str();
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    return nccl_api([&] {
        static std::uint64_t count = 0;
        open_lobby();
        Identity who;
        who.serial = ++count;
        who.root = mail::process();
        *id = {};
        std::memcpy(id->internal, &who, sizeof who);
        return ncclSuccess;
    });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    return nccl_api([&] {
        *comm = nullptr;
        Identity who;
        const auto magic = who.magic;
        std::memcpy(&who, id.internal, sizeof who);
        if (who.magic != magic) return fail(ncclInvalidArgument, "this is no identifier of ncclGetUniqueId");
        if (rank < 0 || rank >= size)
            return fail(ncclInvalidArgument, "the rank is outside the communicator");
        if (!usable(config)) return fail(ncclInvalidArgument, "the configuration is not initialized");
        if (forbidden() != cudaSuccess) return fail(ncclInvalidUsage, "a stream is capturing");
        return begin(join(size, who, rank, blocking_in(config, true)), comm, "ncclCommInitRank");
    });
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(comm, size, id, rank, nullptr);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* list) {
    ncclUniqueId id;
    if (const auto e = ncclGetUniqueId(&id); e != ncclSuccess) return e;
    const int before = current_device();
    ncclResult_t result = ncclGroupStart();
    for (int i = 0; i < count && result == ncclSuccess; ++i) {
        cudaSetDevice(list != nullptr ? list[i] : i);
        result = ncclCommInitRank(&comms[i], count, id, i);
    }
    const ncclResult_t end = ncclGroupEnd();
    cudaSetDevice(before);
    return result != ncclSuccess ? result : end;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* out, ncclConfig_t* config) {
    return nccl_api([&] {
        *out = nullptr;
        if (comm == nullptr || !usable(config)) return ncclInvalidArgument;
        if (advance(*comm->state) != ncclSuccess)
            return fail(ncclInvalidArgument, "the communicator is not ready");
        auto c = split(comm->state, color, key);
        if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
        c->blocking = blocking_in(config, c->blocking);
        return begin(std::move(c), out, "ncclCommSplit");
    });
}

ncclResult_t ncclCommCount(const ncclComm_t c, int* count) {
    if (c == nullptr || c->state->process.empty()) return ncclInvalidArgument;
    *count = c->state->size;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int* rank) {
    if (c == nullptr || c->state->process.empty()) return ncclInvalidArgument;
    *rank = c->state->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(const ncclComm_t c, int* device) {
    if (c == nullptr) return ncclInvalidArgument;
    *device = c->state->device;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* e) {
    const Lock lock;
    const san::Aside aside;
    if (c == nullptr) return ncclInvalidArgument;
    if (c->state->state == ncclInProgress) work_a_little();
    *e = advance(*c->state);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c) {
    return nccl_api([&] {
        if (c == nullptr) return ncclInvalidArgument;
        if (advance(*c->state) != ncclSuccess) return fail(ncclInvalidUsage, "the communicator is not ready");
        c->state->state = ncclInProgress;
        c->state->pending = [state = c->state.get()] {
            return state->open == 0 ? ncclSuccess : ncclInProgress;
        };
        if (!c->state->blocking) return ncclInProgress;
        return settle(c->state, "ncclCommFinalize");
    });
}

namespace {

// NCCL waits here, whatever has happened: a graph that is launched later would find nothing.
void wait_for_graphs(const Communicator& comm, const char* call) {
    drive([&] { return comm.recorded == 0; }, nullptr, call);
}

}  // namespace

ncclResult_t ncclCommDestroy(ncclComm_t c) {
    const Lock lock;
    const san::Aside aside;
    if (c == nullptr) return ncclSuccess;
    const auto state = c->state;
    if (device().lost == cudaSuccess && !state->aborted) {
        drive([&] { return state->open == 0; }, nullptr, "ncclCommDestroy");
    }
    wait_for_graphs(*state, "ncclCommDestroy, which waits for graphs with its operations to be destroyed");
    state->destroyed = true;
    delete c;
    return ncclSuccess;
}

// What is under way ends where it is.
ncclResult_t ncclCommAbort(ncclComm_t c) {
    const Lock lock;
    const san::Aside aside;
    if (c == nullptr) return ncclSuccess;
    c->state->aborted = true;
    wait_for_graphs(*c->state, "ncclCommAbort, which waits for graphs with its operations to be destroyed");
    c->state->destroyed = true;
    delete c;
    return ncclSuccess;
}

}  // extern "C"
