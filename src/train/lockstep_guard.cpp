#include "train/lockstep_guard.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "trireme/comm/lockstep.hpp"

namespace trireme {
namespace {

std::uint64_t mixed(std::uint64_t hash, std::uint64_t word) {
    hash = (hash ^ word) * 0x9e3779b97f4a7c15;
    return hash ^ (hash >> 29);
}

std::string hex(std::uint64_t value) {
    char text[17];
    std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(value ^ (value >> 32)));
    return text;
}

}  // namespace

std::uint64_t checksum(Device& device, const Column& column) {
    constexpr std::size_t piece = 1 << 20;
    const std::size_t bytes = static_cast<std::size_t>(column.whole().count()) * size_of(column.dtype());
    const auto* data = static_cast<const std::byte*>(column.whole().data);
    std::vector<std::byte> copied(device.host_memory() ? 0 : std::min(piece, bytes));
    std::uint64_t hash = bytes;
    for (std::size_t at = 0; at < bytes; at += piece) {
        const std::size_t size = std::min(piece, bytes - at);
        const std::byte* here = data + at;
        if (!device.host_memory()) {
            device.copy_to_host(copied.data(), data + at, size);
            device.synchronize();
            here = copied.data();
        }
        for (std::size_t i = 0; i < size; i += sizeof(std::uint64_t)) {
            std::uint64_t word = 0;
            std::memcpy(&word, here + i, std::min(sizeof word, size - i));
            hash = mixed(hash, word);
        }
    }
    return hash;
}

LockstepGuard::LockstepGuard(Runtime& runtime, const Config& config)
    : runtime_(runtime), every_(config.run.check_every), config_(1) {
    for (const char c : config_text(config)) config_ = mixed(config_, static_cast<unsigned char>(c));
}

std::uint32_t LockstepGuard::fingerprint(const Position& position) const {
    std::uint64_t hash = mixed(config_, runtime_.mesh.world().sequence());
    for (const std::int64_t number :
         {position.epoch, position.step_in_epoch, position.updates, position.skipped, position.samples})
        hash = mixed(hash, static_cast<std::uint64_t>(number));
    return static_cast<std::uint32_t>(hash >> 32);
}

std::string LockstepGuard::in_words(const Position& position) const {
    return "step " + std::to_string(position.attempts()) + ", step " +
           std::to_string(position.step_in_epoch) + " of epoch " + std::to_string(position.epoch + 1) + ", " +
           std::to_string(position.samples) + " samples, configuration " + hex(config_) + ", collectives " +
           hex(runtime_.mesh.world().sequence());
}

void LockstepGuard::check_weights(const TrainingState& state, std::int64_t step) {
    // Where weights are sharded there are no replicas.
    if (every_ == 0 || step % every_ != 0 || state.sharding.stage() > 2 || runtime_.mesh.world().size() == 1)
        return;
    require_same(runtime_.mesh.world(), runtime_.mesh.data(), checksum(runtime_.device, state.arena.weights),
                 "the weights after step " + std::to_string(step));
}

}  // namespace trireme
