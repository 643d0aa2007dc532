// What a rank does with a group of ranks, counted by verb; and a group that is not there, of which nothing
// but this can be had.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "trireme/comm/communicator.hpp"

namespace trireme {

enum class Verb { all_reduce, broadcast, all_gather, all_to_all, reduce_scatter, barrier, send, receive };
inline constexpr int verbs = 8;
std::string_view name_of(Verb verb);

struct Calls {
    std::int64_t calls = 0;
    std::int64_t bytes = 0;  ///< of whole buffers: what is reduced, or what all ranks' parts make together
    friend bool operator==(const Calls&, const Calls&) = default;
};

/// The calls of one rank within one group; several threads may add to them.
class Traffic {
public:
    using Table = std::array<Calls, verbs>;

    void add(Verb verb, std::size_t bytes);
    Table table() const;
    void clear();

private:
    mutable std::mutex mutex_;
    Table table_{};
};

/// Bytes of the elements of these parts together.
std::size_t bytes_of(View buffer, std::span<const Range> parts);

/// What this rank sends to others, at least, with the algorithms that move the fewest bytes (rings):
/// 2 (n - 1) / n of what is reduced by all_reduce; (n - 1) / n where each rank has one part, or gets one.
double sent_bytes(Verb verb, std::int64_t bytes, int ranks);

/// A place in a group that is not there: collectives leave buffers as they are, receives too; all are
/// counted.
class MetaCommunicator final : public Communicator {
public:
    /// `colours`: those of all ranks in the splits to come, in order; in later ones all ranks have the same.
    MetaCommunicator(int rank, int size, std::vector<std::vector<int>> colours = {});

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    std::string backend() const override { return "meta"; }
    void all_reduce(View buffer, Reduce op) override;
    void broadcast(View buffer, int root) override;
    void all_gather(View mine, View all) override;
    void all_gather(View buffer, std::span<const Range> parts) override;
    void all_to_all(View send, std::span<const Range> send_parts, View recv,
                    std::span<const Range> recv_parts) override;
    void reduce_scatter(View all, std::span<const Range> parts, View mine, Reduce op) override;
    void barrier() override;
    void send(View buffer, int to, int tag) override;
    void receive(View buffer, int from, int tag) override;
    Ticket post(View buffer, int to, int tag) override;
    void wait(Ticket) override {}
    std::unique_ptr<Communicator> split(int colour, int key) override;

    /// Of this group and of those that were split off.
    Traffic& traffic() { return *traffic_; }

private:
    int rank_, size_;
    std::vector<std::vector<int>> colours_;
    std::size_t splits_ = 0;
    std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
};

}  // namespace trireme
