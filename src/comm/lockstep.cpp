#include "trireme/comm/lockstep.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

/// "rank 1", "ranks 1, 2".
std::string ranks_text(const std::vector<int>& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    return text;
}

/// The ranks of each value, those that most have first; among equals the one of the lowest rank.
template <class Value>
std::vector<std::pair<Value, std::vector<int>>> by_value(const std::vector<Value>& values,
                                                         const std::vector<int>& ranks) {
    std::vector<std::pair<Value, std::vector<int>>> groups;
    for (std::size_t i = 0; i < values.size(); ++i) {
        auto group = std::find_if(groups.begin(), groups.end(),
                                  [&](const auto& other) { return other.first == values[i]; });
        if (group == groups.end()) group = groups.insert(groups.end(), {values[i], {}});
        group->second.push_back(ranks[i]);
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
    return groups;
}

}  // namespace

void require_lockstep(Communicator& world, std::uint32_t fingerprint, double sum,
                      const std::function<std::string()>& in_words) {
    // 32 bits of up to a million ranks add up exactly. That a rank which differs sees the mean of all by
    // chance is left to the watchdog.
    if (sum == static_cast<double>(fingerprint) * world.size()) return;
    const std::vector<std::string> words = gather_texts(world, in_words());
    std::vector<int> ranks(words.size());
    for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r] = static_cast<int>(r);
    std::string text = "the ranks are not in lockstep: ";
    const auto groups = by_value(words, ranks);
    // The odd ones first: they are what one looks for.
    for (auto group = groups.rbegin(); group != groups.rend(); ++group)
        text += (group == groups.rbegin() ? "" : "; ") + ranks_text(group->second) + ": " + group->first;
    throw Error(Status::failed, text, Scope::all_ranks);
}

void require_same(Communicator& world, Communicator& alike, std::uint64_t checksum, const std::string& what) {
    const std::uint64_t mine[] = {static_cast<std::uint64_t>(world.rank()), checksum};
    std::vector<std::uint64_t> all(2 * static_cast<std::size_t>(alike.size()));
    alike.all_gather(view_of(const_cast<std::uint64_t*>(mine), Shape{2}),
                     view_of(all.data(), Shape{static_cast<std::int64_t>(all.size())}));
    std::vector<int> ranks;
    std::vector<std::uint64_t> checksums;
    for (std::size_t i = 0; i < all.size(); i += 2) {
        ranks.push_back(static_cast<int>(all[i]));
        checksums.push_back(all[i + 1]);
    }
    const auto groups = by_value(checksums, ranks);
    if (all_reduce_value(world, groups.size() > 1 ? 1 : 0, Reduce::max) == 0) return;
    std::string text;
    for (std::size_t g = 1; g < groups.size(); ++g)
        text += (text.empty() ? "" : ", ") + ranks_text(groups[g].second);
    if (!text.empty()) text += " from " + ranks_text(groups.front().second);
    // Each group says what it has found; one rank of a group speaks for it.
    std::string found;
    for (const std::string& group : gather_texts(world, alike.rank() == 0 ? text : ""))
        if (!group.empty()) found += (found.empty() ? "" : "; ") + group;
    throw Error(Status::failed,
                what + " should be the same on all of these ranks, but differ: " + found +
                    "; look at the memory of those machines, and at whether all see the same files",
                Scope::all_ranks);
}

}  // namespace trireme
