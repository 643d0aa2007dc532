// Letters between ranks of NCCL communicators, in this process or over MPI in others. Nothing here waits.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace trireme::cudaemu::mail {

enum class Kind : std::int32_t { join, welcome, split, collective, send, receipt };

// What ranks must agree on in each collective.
struct Signature {
    std::int32_t call = 0, type = 0, op = 0, root = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Signature&, const Signature&) = default;
};

struct Key {
    std::uint64_t communicator = 0, sequence = 0;
    Kind kind{};
    std::int32_t from = 0, to = 0;  // ranks of the communicator
    friend auto operator<=>(const Key&, const Key&) = default;
};

struct Letter {
    Key key;
    Signature said = {};
    std::vector<std::byte> body = {};
};

int process();  // this one's rank in the job, 0 without MPI
void post(int process, Letter);
void collect();  // takes in what has come
std::optional<Letter> take(const Key&);
bool has(const Key&);

// Called for every join, wherever the process is when it comes.
void on_join(std::function<void(Letter)>);

void begin();  // when MPI has been initialized, on all ranks
void end();    // before it is finalized

}  // namespace trireme::cudaemu::mail
