#include <algorithm>
#include <array>

#include "app/doctor.hpp"
#include "app/text.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme::app::doctor {
namespace {

/// A rank's text on all ranks, cut to a fixed length: where collectives are in doubt, nothing is allocated by
/// what they say.
std::string text_of_rank(Communicator& world, int rank, const std::string& text) {
    std::array<char, 400> letters{};
    text.copy(letters.data(), letters.size() - 1);
    world.broadcast(view_of(reinterpret_cast<std::uint8_t*>(letters.data()), Shape{letters.size()}), rank);
    letters.back() = '\0';
    return letters.data();
}

}  // namespace

void Findings::say(const std::string& text) const {
    if (world_.rank() == 0 && !quiet_) print(text);
}

void Findings::check(const std::string& name, const std::string& wrong_here, const std::string& detail) {
    const int size = world_.size();
    const int first = all_reduce_value(world_, wrong_here.empty() ? size : world_.rank(), Reduce::min);
    if (first < 0 || first >= size) return settle(name, "", detail);
    const int failed = all_reduce_value(world_, wrong_here.empty() ? 0 : 1);
    std::string wrong = text_of_rank(world_, first, me_ + ": " + wrong_here);
    if (failed > 1) wrong += " (and others, " + std::to_string(failed) + " ranks in all)";
    settle(name, wrong);
}

void Findings::settle(const std::string& name, const std::string& wrong, const std::string& detail) {
    const bool ok = wrong.empty();
    std::string text = ok ? detail : wrong;
    std::replace(text.begin(), text.end(), '\n', ' ');
    checks_.push_back({name, ok, text});
    const std::string line = name + (text.empty() ? "" : ": " + text);
    if (!ok) problems_.push_back(line);
    say((ok ? "  ok       " : "  PROBLEM  ") + line + "\n");
}

void Findings::note(const std::string& text) {
    notes_.push_back(text);
    say("  note     " + text + "\n");
}

}  // namespace trireme::app::doctor
