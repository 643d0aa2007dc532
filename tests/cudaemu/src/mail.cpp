#include "mail.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <type_traits>
#include <utility>

#include "sanitizer.hpp"

namespace trireme::cudaemu::mail {
namespace {

struct Sent {
    std::vector<std::byte> bytes;
    MPI_Request request = MPI_REQUEST_NULL;
};

MPI_Comm comm = MPI_COMM_NULL;  // apart from what the program sends
int rank = 0;
std::list<Sent> sent;
std::map<Key, Letter> box;
std::function<void(Letter)> join;

struct Head {
    Key key;
    Signature said;
};
static_assert(std::is_trivially_copyable_v<Head>);

void deliver(Letter letter) {
    if (letter.key.kind == Kind::join) {
        if (join) join(std::move(letter));
        return;
    }
    const Key key = letter.key;
    box.insert_or_assign(key, std::move(letter));
}

// MPI takes locks, which must not look like an order between the streams that have letters to send or to
// take.
void* postman() {
    static void* const actor = [] {
        void* made = san::actor();
        const san::Acting as(made);
        san::unwatch();
        return made;
    }();
    return actor;
}

bool receive_one() {
    int there = 0, size = 0;
    MPI_Message message = MPI_MESSAGE_NULL;
    MPI_Status status;
    PMPI_Improbe(MPI_ANY_SOURCE, 0, comm, &there, &message, &status);
    if (there == 0) return false;
    PMPI_Get_count(&status, MPI_BYTE, &size);
    std::vector<std::byte> bytes(static_cast<std::size_t>(size));
    PMPI_Mrecv(bytes.data(), size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    Head head;
    std::memcpy(&head, bytes.data(), sizeof head);
    bytes.erase(bytes.begin(), bytes.begin() + sizeof head);
    deliver({head.key, head.said, std::move(bytes)});
    return true;
}

void forget_sent() {
    sent.remove_if([](Sent& s) {
        int done = 0;
        PMPI_Test(&s.request, &done, MPI_STATUS_IGNORE);
        return done != 0;
    });
}

}  // namespace

int process() {
    return rank;
}

void post(int to, Letter letter) {
    if (to == rank) return deliver(std::move(letter));
    if (comm == MPI_COMM_NULL) {
        std::fputs("cudaemu: NCCL among processes needs MPI, which is not initialized\n", stderr);
        std::abort();
    }
    const Head head{letter.key, letter.said};
    Sent& s = sent.emplace_back();
    s.bytes.resize(sizeof head + letter.body.size());
    std::memcpy(s.bytes.data(), &head, sizeof head);
    std::ranges::copy(letter.body, s.bytes.begin() + sizeof head);
    const san::Acting as(postman());
    PMPI_Isend(s.bytes.data(), static_cast<int>(s.bytes.size()), MPI_BYTE, to, 0, comm, &s.request);
}

void collect() {
    if (comm == MPI_COMM_NULL) return;
    const san::Acting as(postman());
    while (receive_one()) {
    }
    forget_sent();
}

std::optional<Letter> take(const Key& key) {
    const auto found = box.find(key);
    if (found == box.end()) return std::nullopt;
    Letter letter = std::move(found->second);
    box.erase(found);
    return letter;
}

bool has(const Key& key) {
    return box.contains(key);
}

void on_join(std::function<void(Letter)> f) {
    join = std::move(f);
}

void begin() {
    if (comm != MPI_COMM_NULL) return;
    PMPI_Comm_dup(MPI_COMM_WORLD, &comm);
    PMPI_Comm_rank(comm, &rank);
}

// What was sent last may still be on its way to a rank that waits for it; one that was aborted never takes
// it.
void end() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!sent.empty() && std::chrono::steady_clock::now() < limit) collect();
    comm = MPI_COMM_NULL;
}

}  // namespace trireme::cudaemu::mail
