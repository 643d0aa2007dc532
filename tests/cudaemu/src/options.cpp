#include "options.hpp"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <utility>

namespace trireme::cudaemu {
namespace {

[[noreturn]] void refuse(const char* variable, std::string_view value, const char* expected) {
    std::fprintf(stderr, "cudaemu: %s is \"%.*s\"; expected %s\n", variable, static_cast<int>(value.size()),
                 value.data(), expected);
    std::exit(2);
}

template <class T>
bool parse(std::string_view text, T& to) {
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, to);
    return error == std::errc() && at == end && !text.empty();
}

template <class T>
void number(const char* variable, T& to) {
    const char* value = std::getenv(variable);
    if (value != nullptr && !parse(value, to)) refuse(variable, value, "a number");
}

template <class T>
void word(const char* variable, T& to, std::initializer_list<std::pair<std::string_view, T>> words,
          const char* expected) {
    const char* value = std::getenv(variable);
    if (value == nullptr) return;
    for (const auto& [name, meaning] : words) {
        if (name != value) continue;
        to = meaning;
        return;
    }
    refuse(variable, value, expected);
}

void fault(const char* variable, RankFault& to) {
    const char* value = std::getenv(variable);
    if (value == nullptr) return;
    const std::string_view text = value;
    const auto colon = text.find(':');
    if (colon == text.npos || !parse(text.substr(0, colon), to.rank) ||
        !parse(text.substr(colon + 1), to.after)) {
        refuse(variable, value, "RANK:OPERATIONS");
    }
}

Options from_environment() {
    Options o;
    word("TRIREME_EMU_THREADS", o.threads,
         {{"forward", Order::forward}, {"reverse", Order::reverse}, {"shuffled", Order::shuffled}},
         "forward, reverse or shuffled");
    word("TRIREME_EMU_STREAMS", o.streams,
         {{"eager", Streams::eager},
          {"lazy", Streams::lazy},
          {"others_first", Streams::others_first},
          {"shuffled", Streams::shuffled}},
         "eager, lazy, others_first or shuffled");
    word("TRIREME_EMU_GUARD", o.guard, {{"on", true}, {"off", false}}, "on or off");
    number("TRIREME_EMU_SEED", o.seed);
    number("TRIREME_EMU_MEMORY", o.memory);
    number("TRIREME_EMU_HANG_SECONDS", o.hang_seconds);
    number("TRIREME_EMU_FAIL_ALLOC", o.fail_alloc.occasion);
    number("TRIREME_EMU_FAIL_HOST_ALLOC", o.fail_host_alloc.occasion);
    number("TRIREME_EMU_FAIL_LAUNCH", o.fail_launch.occasion);
    number("TRIREME_EMU_FAIL_KERNEL", o.fail_kernel.occasion);
    fault("TRIREME_EMU_NCCL_ERROR", o.nccl_error);
    fault("TRIREME_EMU_NCCL_STALL", o.nccl_stall);
    if (const char* devices = std::getenv("TRIREME_EMU_DEVICES"); devices != nullptr) {
        if (std::string_view(devices) == "none") {
            o.devices = -1;
        } else if (!parse(devices, o.devices) || o.devices < 0 || o.devices > 64) {
            refuse("TRIREME_EMU_DEVICES", devices, "0 to 64, or none");
        }
    }
    if (const char* site = std::getenv("TRIREME_EMU_DROP_BARRIER")) o.drop_barrier = site;
    o.list_barriers = std::getenv("TRIREME_EMU_LIST_BARRIERS") != nullptr;
    return o;
}

}  // namespace

Options& options() {
    static Options& o = *new Options(from_environment());
    return o;
}

std::mt19937_64& dice() {
    static std::mt19937_64 d(options().seed);
    return d;
}

}  // namespace trireme::cudaemu
