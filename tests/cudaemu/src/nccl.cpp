// NCCL's calls that move data, and groups of them.
#include <nccl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "capture.hpp"
#include "communicator.hpp"
#include "reduce.hpp"
#include "transfer.hpp"

namespace trireme::cudaemu {
namespace {

struct Group {
    int depth = 0;
    std::vector<NcclCall> calls = {};
    std::vector<std::shared_ptr<Communicator>> joining = {};
    ncclResult_t error = ncclSuccess;  // of any call in it, which then does nothing at all
};

Group& group() {
    static thread_local Group g;
    return g;
}

// Held by what is recorded of a call.
class Recorded {
public:
    explicit Recorded(std::shared_ptr<Communicator> comm) : comm_(std::move(comm)) { ++comm_->recorded; }
    ~Recorded() { --comm_->recorded; }
    Recorded(const Recorded&) = delete;
    Recorded& operator=(const Recorded&) = delete;

private:
    std::shared_ptr<Communicator> comm_;
};

Work recordable(cudaStream_t stream, std::vector<NcclCall> calls) {
    std::vector<std::shared_ptr<Recorded>> held;
    if (stream != nullptr && stream->capture)
        for (const NcclCall& call : calls) held.push_back(std::make_shared<Recorded>(call.comm));
    Work made = work(std::move(calls));
    if (held.empty()) return made;
    made.make = [held = std::move(held), make = std::move(made.make)] { return make(); };
    return made;
}

// As NCCL does: all calls of a group that share a stream go together.
ncclResult_t submit(std::vector<NcclCall> calls) {
    while (!calls.empty()) {
        const cudaStream_t stream = calls.front().stream;
        std::vector<NcclCall> together;
        std::ranges::copy_if(calls, std::back_inserter(together),
                             [&](const NcclCall& c) { return c.stream == stream; });
        std::erase_if(calls, [&](const NcclCall& c) { return c.stream == stream; });
        if (const cudaError_t e = submit(stream, recordable(stream, std::move(together))); e != cudaSuccess) {
            return fail(ncclUnhandledCudaError, cudaGetErrorString(note(e)));
        }
    }
    return ncclSuccess;
}

bool overlap(const NcclCall& c) {
    const auto* in = static_cast<const std::byte*>(c.in);
    const auto* out = static_cast<const std::byte*>(c.out);
    if (in == nullptr || out == nullptr || in + c.in_bytes <= out || out + c.out_bytes <= in) return false;
    const auto rank = static_cast<std::size_t>(c.comm->rank);
    switch (c.kind()) {
        case Collective::reduce_scatter:
            return out != in + rank * c.out_bytes;
        case Collective::all_gather:
            return in != out + rank * c.in_bytes;
        default:
            return in != out;
    }
}

ncclResult_t check(const NcclCall& c) {
    const Communicator& comm = *c.comm;
    if (c.stream == nullptr)
        return default_stream(), fail(ncclInvalidUsage, "the default stream is captured");
    if (c.stream->device != comm.device) {
        return fail(ncclInvalidArgument, "the stream is another device's than the communicator");
    }
    const auto usable = [&](const void* p, std::size_t n) {
        return p == nullptr || n == 0 || device_of(p, n) == comm.device;
    };
    if (!usable(c.in, c.in_bytes) || !usable(c.out, c.out_bytes)) {
        return fail(ncclInvalidArgument, "a buffer is not in the memory of the communicator's device");
    }
    if (overlap(c)) return fail(ncclInvalidArgument, "the buffers overlap");
    if (c.said.root < 0 || c.said.root >= comm.size || c.peer >= comm.size) {
        return fail(ncclInvalidArgument, "the other rank is outside the communicator");
    }
    return ncclSuccess;
}

struct Buffers {
    const void* in;
    std::size_t in_count;
    void* out;
    std::size_t out_count;
};

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, Collective kind, std::size_t count,
                 ncclDataType_t type, ncclRedOp_t op, int root, const Buffers& b, int peer = -1) {
    return nccl_api([&]() -> ncclResult_t {
        const auto result = [&]() -> ncclResult_t {
            if (comm == nullptr) return fail(ncclInvalidArgument, "there is no communicator");
            const ncclResult_t state = advance(*comm->state);
            if (state == ncclInProgress) return fail(ncclInvalidArgument, "the communicator is not ready");
            if (state != ncclSuccess) return state;
            const std::size_t bytes = width(type);
            if (bytes == 0 || !known(op))
                return fail(ncclInvalidArgument, "the type or operation is unknown");
            const mail::Signature said{static_cast<std::int32_t>(kind), type, op, root, count};
            const NcclCall call{comm->state,         stream, said, b.in, b.in_count * bytes, b.out,
                                b.out_count * bytes, peer};
            if (const auto e = check(call); e != ncclSuccess) return e;
            if (group().depth == 0) return submit({call});
            group().calls.push_back(call);
            return ncclSuccess;
        }();
        if (result != ncclSuccess && group().depth != 0) group().error = result;
        return result;
    });
}

}  // namespace

bool in_group() {
    return group().depth != 0;
}

void join_later(std::shared_ptr<Communicator> c) {
    group().joining.push_back(std::move(c));
}

}  // namespace trireme::cudaemu

using namespace trireme::cudaemu;

extern "C" {

ncclResult_t ncclGroupStart() {
    ++group().depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    return nccl_api([]() -> ncclResult_t {
        Group& g = group();
        if (g.depth == 0) return fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
        if (--g.depth != 0) return ncclSuccess;
        auto [depth, calls, joining, error] = std::exchange(g, {});
        if (error != ncclSuccess) return error;
        ncclResult_t result = submit(std::move(calls));
        for (const auto& c : joining) {
            const ncclResult_t joined = c->blocking ? settle(c, "ncclGroupEnd") : ncclInProgress;
            if (result == ncclSuccess) result = joined;
        }
        return result;
    });
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t op,
                           ncclComm_t c, cudaStream_t s) {
    return add(c, s, Collective::all_reduce, n, t, op, 0, {in, n, out, n});
}

ncclResult_t ncclReduce(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t op, int root,
                        ncclComm_t c, cudaStream_t s) {
    const bool mine = c != nullptr && c->state->rank == root;
    return add(c, s, Collective::reduce, n, t, op, root, {in, n, mine ? out : nullptr, mine ? n : 0});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t op,
                               ncclComm_t c, cudaStream_t s) {
    const auto size = static_cast<std::size_t>(c != nullptr ? c->state->size : 0);
    return add(c, s, Collective::reduce_scatter, n, t, op, 0, {in, n * size, out, n});
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclComm_t c,
                           cudaStream_t s) {
    const auto size = static_cast<std::size_t>(c != nullptr ? c->state->size : 0);
    return add(c, s, Collective::all_gather, n, t, ncclSum, 0, {in, n, out, n * size});
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t s) {
    const bool mine = c != nullptr && c->state->rank == root;
    return add(c, s, Collective::broadcast, n, t, ncclSum, root, {mine ? in : nullptr, mine ? n : 0, out, n});
}

ncclResult_t ncclBcast(void* p, std::size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t s) {
    return ncclBroadcast(p, p, n, t, root, c, s);
}

ncclResult_t ncclSend(const void* in, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c,
                      cudaStream_t s) {
    return add(c, s, Collective::send, n, t, ncclSum, 0, {in, n, nullptr, 0}, peer);
}

ncclResult_t ncclRecv(void* out, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
    return add(c, s, Collective::receive, n, t, ncclSum, 0, {nullptr, 0, out, n}, peer);
}

}  // extern "C"
