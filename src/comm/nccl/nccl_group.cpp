#include "comm/nccl_group.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <string>

#include "tensor/cuda/device.hpp"
#include "tensor/cuda/errors.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace cuda {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));

void require(ncclResult_t result, ncclComm_t comm = nullptr) {
    if (result == ncclSuccess) return;
    const char* more = ncclGetLastError(comm);
    throw failure(std::string(ncclGetErrorString(result)) +
                  (more != nullptr && *more != '\0' ? std::string(" (") + more + ")" : ""));
}

/// Of elements that are only moved: any type of that size.
ncclDataType_t bits_of(DType type) {
    switch (size_of(type)) {
        case 1:
            return ncclUint8;
        case 2:
            return ncclFloat16;
        case 4:
            return ncclUint32;
        default:
            return ncclUint64;
    }
}

ncclDataType_t number_type(DType type) {
    switch (type) {
        case DType::f32:
            return ncclFloat32;
        case DType::f64:
            return ncclFloat64;
        case DType::f16:
            return ncclFloat16;
        case DType::bf16:
            return ncclBfloat16;
        case DType::i8:
            return ncclInt8;
        case DType::u8:
            return ncclUint8;
        case DType::i32:
            return ncclInt32;
        case DType::u32:
            return ncclUint32;
        case DType::i64:
            return ncclInt64;
        case DType::u64:
            return ncclUint64;
        case DType::i16:
        case DType::u16:
            break;
    }
    throw failure("NCCL cannot reduce " + std::string(name_of(type)));
}

ncclRedOp_t operation_of(Reduce op) {
    return op == Reduce::sum ? ncclSum : op == Reduce::max ? ncclMax : ncclMin;
}

std::byte* element(View view, std::int64_t index) {
    return static_cast<std::byte*>(view.data) + static_cast<std::size_t>(index) * size_of(view.dtype);
}

std::size_t count_of(Range part) {
    return static_cast<std::size_t>(std::max<std::int64_t>(0, part.size()));
}

class Group final : public NcclGroup {
public:
    Group(CudaDevice& device, const NcclId& id, int rank, int size) : device_(device) {
        ncclUniqueId nccl_id{};
        std::memcpy(&nccl_id, id.data(), id.size());
        device_.stream();  // makes the device the thread's
        require(ncclCommInitRank(&comm_, size, nccl_id, rank));
        device_.watch(this, [this] {
            try {
                look_for_errors();
            } catch (const Error& error) {
                throw failure(std::string("NCCL reports: ") + error.what());
            }
        });
    }

    /// After a failure others may never come: this end does not wait for them. Not before: NCCL would wait
    /// until all graphs with operations of the group are gone.
    ~Group() override {
        device_.unwatch(this);
        cudaSetDevice(device_.ordinal());
        if (failed_ || std::uncaught_exceptions() > 0)
            ncclCommAbort(comm_);
        else
            ncclCommDestroy(comm_);
    }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    void all_reduce(View buffer, Reduce op) override {
        const ncclDataType_t type = number_type(buffer.dtype);
        begin([&](cudaStream_t stream) {
            return ncclAllReduce(buffer.data, buffer.data, static_cast<std::size_t>(buffer.count()), type,
                                 operation_of(op), comm_, stream);
        });
    }

    void broadcast(View buffer, int root) override {
        begin([&](cudaStream_t stream) {
            return ncclBroadcast(buffer.data, buffer.data, static_cast<std::size_t>(buffer.count()),
                                 bits_of(buffer.dtype), root, comm_, stream);
        });
    }

    void all_gather(View mine, View all) override {
        begin([&](cudaStream_t stream) {
            return ncclAllGather(mine.data, all.data, static_cast<std::size_t>(mine.count()),
                                 bits_of(mine.dtype), comm_, stream);
        });
    }

    void all_gather(View buffer, std::span<const Range> parts) override {
        together(parts.size(), [&](std::size_t q, cudaStream_t stream) {
            if (parts[q].empty()) return ncclSuccess;
            std::byte* part = element(buffer, parts[q].begin);
            return ncclBroadcast(part, part, count_of(parts[q]), bits_of(buffer.dtype), static_cast<int>(q),
                                 comm_, stream);
        });
    }

    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override {
        together(send_parts.size(), [&](std::size_t q, cudaStream_t stream) {
            const int peer = static_cast<int>(q);
            ncclResult_t result = ncclSuccess;
            if (!send_parts[q].empty())
                result = ncclSend(element(send, send_parts[q].begin), count_of(send_parts[q]),
                                  bits_of(send.dtype), peer, comm_, stream);
            if (result == ncclSuccess && !recv_parts[q].empty())
                result = ncclRecv(element(recv, recv_parts[q].begin), count_of(recv_parts[q]),
                                  bits_of(recv.dtype), peer, comm_, stream);
            return result;
        });
    }

    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override {
        const ncclDataType_t type = number_type(all.dtype);
        const bool even = std::all_of(parts.begin(), parts.end(),
                                      [&](Range part) { return part.size() == parts.front().size(); });
        if (even)
            return begin([&](cudaStream_t stream) {
                return ncclReduceScatter(all.data, mine.data, count_of(parts.front()), type, operation_of(op),
                                         comm_, stream);
            });
        together(parts.size(), [&](std::size_t q, cudaStream_t stream) {
            if (parts[q].empty()) return ncclSuccess;
            return ncclReduce(element(all, parts[q].begin), mine.data, count_of(parts[q]), type,
                              operation_of(op), static_cast<int>(q), comm_, stream);
        });
    }

    void send(View buffer, int to) override {
        begin([&](cudaStream_t stream) {
            return ncclSend(buffer.data, static_cast<std::size_t>(buffer.count()), bits_of(buffer.dtype), to,
                            comm_, stream);
        });
    }

    void receive(View buffer, int from) override {
        begin([&](cudaStream_t stream) {
            return ncclRecv(buffer.data, static_cast<std::size_t>(buffer.count()), bits_of(buffer.dtype),
                            from, comm_, stream);
        });
    }

    void finish() override {
        look_for_errors();
        device_.synchronize();
    }

private:
    template <class Begin>
    void begin(const Begin& call) {
        const cudaStream_t stream = device_.stream();
        look_for_errors();
        if (const ncclResult_t begun = call(stream); begun != ncclSuccess) fail(begun);
    }

    template <class Each>
    void together(std::size_t count, const Each& each) {
        begin([&](cudaStream_t stream) {
            ncclResult_t result = ncclGroupStart();
            for (std::size_t q = 0; q < count && result == ncclSuccess; ++q) result = each(q, stream);
            const ncclResult_t ended = ncclGroupEnd();
            return result != ncclSuccess ? result : ended;
        });
    }

    /// What a call or its work came to: the group is of no use any more.
    [[noreturn]] void fail(ncclResult_t result) {
        std::string text = ncclGetErrorString(result);
        if (const char* more = ncclGetLastError(comm_); more != nullptr && *more != '\0')
            text += std::string(" (") + more + ")";
        failed_ = true;
        throw failure(text);
    }

    void look_for_errors() {
        if (failed_) throw failure("the group has failed before");
        ncclResult_t state = ncclSuccess;
        require(ncclCommGetAsyncError(comm_, &state), comm_);
        if (state != ncclSuccess && state != ncclInProgress) fail(state);
    }

    CudaDevice& device_;
    ncclComm_t comm_ = nullptr;
    std::atomic<bool> failed_{false};  ///< other threads wait for the device, too
};

}  // namespace
}  // namespace cuda

NcclId make_nccl_id() {
    ncclUniqueId made{};
    cuda::require(ncclGetUniqueId(&made));
    NcclId id{};
    std::memcpy(id.data(), &made, id.size());
    return id;
}

bool has_nccl() {
    return true;
}

std::unique_ptr<NcclGroup> make_nccl_group(Device& device, const NcclId& id, int rank, int size) {
    return std::make_unique<cuda::Group>(static_cast<cuda::CudaDevice&>(device), id, rank, size);
}

}  // namespace trireme
