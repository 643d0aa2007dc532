#include "transfer.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "machine.hpp"
#include "options.hpp"
#include "reduce.hpp"

namespace trireme::cudaemu {
namespace {

using mail::Key;
using mail::Kind;
using mail::Letter;
using Bytes = std::vector<std::byte>;

bool hits(const RankFault& fault, std::size_t operation) {
    return fault.rank == mail::process() && operation > fault.after;
}

// One call on its way.
class Transfer {
public:
    explicit Transfer(const NcclCall& call) : call_(call), comm_(*call.comm) {
        static std::size_t operations = 0;
        if (comm_.destroyed && !comm_.aborted) {
            std::fprintf(stderr, "cudaemu: %s is launched after its communicator was destroyed\n",
                         call.describe().c_str());
            std::abort();
        }
        ++operations;
        fails_ = hits(options().nccl_error, operations);
        stalls_ = fails_ || hits(options().nccl_stall, operations);
        ++comm_.open;
        number();
    }
    ~Transfer() { --comm_.open; }
    Transfer(const Transfer&) = delete;
    Transfer& operator=(const Transfer&) = delete;

    Progress run() {
        if (done_) return Progress::done;
        if (comm_.aborted) return finish();
        if (fails_) comm_.state = ncclRemoteError;
        if (stalls_) return Progress::waiting;
        const bool begins = !begun_;
        if (begins) begin();
        begun_ = true;
        mail::collect();
        const bool complete = call_.kind() == Collective::send      ? take_receipt()
                              : call_.kind() == Collective::receive ? take_message()
                                                                    : take_parts();
        if (complete) return finish();
        return begins ? Progress::moved : Progress::waiting;
    }

    std::string describe() const {
        std::string text = call_.describe();
        if (stalls_) return text + (fails_ ? ", which an injected error ended" : ", which is made to stall");
        if (!begun_) return text;
        text += ", which waits for rank";
        for (int r = 0; r < comm_.size; ++r) {
            if (waits_for(r)) text += " " + std::to_string(r);
        }
        return text;
    }

private:
    Progress finish() {
        done_ = true;
        return Progress::done;
    }

    void number() {
        if (call_.kind() == Collective::send) {
            sequence_ = comm_.sent[call_.peer]++;
        } else if (call_.kind() == Collective::receive) {
            sequence_ = comm_.received[call_.peer]++;
        } else {
            sequence_ = comm_.collectives++;
            parts_.resize(static_cast<std::size_t>(comm_.size));
        }
    }

    bool waits_for(int rank) const {
        return parts_.empty() ? rank == call_.peer : !parts_[static_cast<std::size_t>(rank)];
    }

    Bytes copy(std::size_t offset, std::size_t n) const {
        const Access access(comm_.device);
        const auto* from = static_cast<const std::byte*>(call_.in) + offset;
        return {from, from + n};
    }

    void write(const Bytes& bytes) const {
        const Access access(comm_.device);
        san::writes(call_.out, bytes.size());
        if (!bytes.empty()) std::memcpy(call_.out, bytes.data(), bytes.size());
    }

    // What a rank needs of this one's input.
    Bytes part_for(int rank) const {
        switch (call_.kind()) {
            case Collective::all_reduce:
            case Collective::all_gather:
                return copy(0, call_.in_bytes);
            case Collective::reduce:
                return rank == call_.said.root ? copy(0, call_.in_bytes) : Bytes();
            case Collective::reduce_scatter:
                return copy(static_cast<std::size_t>(rank) * call_.out_bytes, call_.out_bytes);
            case Collective::broadcast:
                return comm_.rank == call_.said.root ? copy(0, call_.in_bytes) : Bytes();
            default:
                return copy(0, call_.in_bytes);
        }
    }

    void post(int rank, Kind kind, Bytes body) const {
        mail::post(comm_.process[static_cast<std::size_t>(rank)],
                   {{comm_.id, sequence_, kind, comm_.rank, rank}, call_.said, std::move(body)});
    }

    void begin() {
        if (call_.in != nullptr) san::reads(call_.in, call_.in_bytes);
        if (call_.kind() == Collective::receive) return;
        if (call_.kind() == Collective::send) return post(call_.peer, Kind::send, part_for(call_.peer));
        for (int r = 0; r < comm_.size; ++r) post(r, Kind::collective, part_for(r));
    }

    // There are no buffers that would hide a missing receive.
    bool take_receipt() const {
        return mail::take({comm_.id, sequence_, Kind::receipt, call_.peer, comm_.rank}).has_value();
    }

    bool take_message() const {
        const auto letter = mail::take({comm_.id, sequence_, Kind::send, call_.peer, comm_.rank});
        if (!letter) return false;
        if (letter->said.count != call_.said.count || letter->said.type != call_.said.type) disagree(*letter);
        write(letter->body);
        post(call_.peer, Kind::receipt, {});
        return true;
    }

    bool take_parts() {
        for (int r = 0; r < comm_.size; ++r) {
            auto& part = parts_[static_cast<std::size_t>(r)];
            if (part) continue;
            auto letter = mail::take({comm_.id, sequence_, Kind::collective, r, comm_.rank});
            if (!letter) continue;
            if (letter->said != call_.said) disagree(*letter);
            part = std::move(letter->body);
        }
        if (!std::ranges::all_of(parts_, [](const auto& part) { return part.has_value(); })) return false;
        if (call_.out != nullptr) write(result());
        return true;
    }

    Bytes result() {
        if (call_.kind() == Collective::broadcast) {
            return std::move(*parts_[static_cast<std::size_t>(call_.said.root)]);
        }
        Bytes sum = std::move(*parts_.front());
        if (call_.kind() == Collective::all_gather) {
            for (std::size_t r = 1; r < parts_.size(); ++r) {
                sum.insert(sum.end(), parts_[r]->begin(), parts_[r]->end());
            }
            return sum;
        }
        const auto type = static_cast<ncclDataType_t>(call_.said.type);
        const auto op = static_cast<ncclRedOp_t>(call_.said.op);
        const std::size_t count = sum.size() / width(type);
        for (std::size_t r = 1; r < parts_.size(); ++r)
            reduce(sum.data(), parts_[r]->data(), count, type, op);
        if (op == ncclAvg) divide(sum.data(), count, type, comm_.size);
        return sum;
    }

    // On a device they would hang, or compute nonsense.
    [[noreturn]] void disagree(const Letter& other) const {
        NcclCall theirs = call_;
        theirs.said = other.said;
        std::fprintf(
            stderr, "cudaemu: ranks disagree about an operation: rank %d of %d is in %s, rank %d in %s\n",
            comm_.rank, comm_.size, call_.describe().c_str(), other.key.from, theirs.describe().c_str());
        std::abort();
    }

    NcclCall call_;
    Communicator& comm_;
    std::uint64_t sequence_ = 0;
    std::vector<std::optional<Bytes>> parts_;  // of a collective, from each rank
    bool begun_ = false, done_ = false, fails_ = false, stalls_ = false;
};

// A stream comes to this and stays until the other ranks have come too.
class Exchange {
public:
    explicit Exchange(const std::vector<NcclCall>& calls) {
        for (const NcclCall& call : calls) transfers_.push_back(std::make_unique<Transfer>(call));
    }

    Progress run() {
        bool done = true, moved = false;
        for (const auto& transfer : transfers_) {
            const Progress progress = transfer->run();
            done = done && progress == Progress::done;
            moved = moved || progress == Progress::moved;
        }
        return done ? Progress::done : moved ? Progress::moved : Progress::waiting;
    }

    std::string describe() const {
        std::string text;
        for (const auto& transfer : transfers_) text += (text.empty() ? "" : "; ") + transfer->describe();
        return text;
    }

private:
    std::vector<std::unique_ptr<Transfer>> transfers_;
};

}  // namespace

std::string NcclCall::describe() const {
    static constexpr const char* names[] = {"",           "all-reduce", "reduce", "reduce-scatter",
                                            "all-gather", "broadcast",  "send",   "receive"};
    std::string text = "NCCL ";
    text += names[said.call];
    text += " of " + std::to_string(said.count) + " " + name_of(static_cast<ncclDataType_t>(said.type));
    if (kind() <= Collective::reduce_scatter) {
        text += std::string(" (") + name_of(static_cast<ncclRedOp_t>(said.op)) + ")";
    }
    if (kind() == Collective::reduce || kind() == Collective::broadcast)
        text += " with root " + std::to_string(said.root);
    return text;
}

Work work(std::vector<NcclCall> calls) {
    std::string text;
    for (const NcclCall& call : calls) text += (text.empty() ? "" : "; ") + call.describe();
    const auto make = [calls = std::move(calls)] {
        auto exchange = std::make_shared<Exchange>(calls);
        Op op;
        op.run = [exchange] { return exchange->run(); };
        op.describe = [exchange] { return exchange->describe(); };
        return op;
    };
    return {NodeKind::kernel, [text] { return text; }, make};
}

}  // namespace trireme::cudaemu
