#include <string>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/optim/scaler.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

template <class Body>
std::string failure_of(const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        CHECK(error.status() == Status::failed);
        CHECK(error.scope() == Scope::all_ranks);
        return error.what();
    }
    return {};
}

std::string refusal_of(const ScalerOptions& options) {
    try {
        const Scaler scaler(options);
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return {};
}

}  // namespace

TEST_CASE("case 9: six skips bring the scale from 2^20 to 16384, and it stays there", "[unit][optim]") {
    const Scaler scaler({.enabled = true, .init = 1048576, .growth = 1, .backoff = 0.5});
    ScalerState state = scaler.start();
    CHECK(state == ScalerState{.scale = 1048576});
    for (int i = 0; i < 6; ++i) scaler.skipped(state, "w", 0);
    CHECK(state == ScalerState{.scale = 16384, .growth = 0, .skips = 6});
    for (int i = 0; i < 4; ++i) scaler.applied(state);
    CHECK(state == ScalerState{.scale = 16384, .growth = 4, .skips = 0});
}

TEST_CASE("the scale grows after an interval of good steps, counted from the last change", "[unit][optim]") {
    const Scaler scaler({.enabled = true, .init = 8, .growth = 2, .backoff = 0.25, .interval = 3});
    ScalerState state = scaler.start();
    scaler.applied(state);
    scaler.applied(state);
    CHECK(state == ScalerState{.scale = 8, .growth = 2});
    scaler.applied(state);
    CHECK(state == ScalerState{.scale = 16, .growth = 0});
    scaler.applied(state);
    scaler.applied(state);
    scaler.skipped(state, "w", 5);  // begins to count anew
    CHECK(state == ScalerState{.scale = 4, .growth = 0, .skips = 1});
    scaler.applied(state);
    scaler.applied(state);
    CHECK(state == ScalerState{.scale = 4, .growth = 2});
    scaler.applied(state);
    CHECK(state == ScalerState{.scale = 8, .growth = 0});
}

TEST_CASE("the scale never leaves what float32 holds", "[unit][optim]") {
    const Scaler scaler({.enabled = true, .init = 0x1p126, .interval = 1});
    ScalerState state = scaler.start();
    scaler.applied(state);
    CHECK(state.scale == 0x1p127);
    scaler.applied(state);
    CHECK(state == ScalerState{.scale = 0x1p127});
}

TEST_CASE("too many skips in a row end the run and name what went wrong first", "[unit][optim]") {
    const Scaler scaler({.enabled = true, .init = 1024, .most_skips = 3});
    ScalerState state = scaler.start();
    scaler.skipped(state, "conv.weight", 41);
    scaler.skipped(state, "conv.weight", 41);
    scaler.applied(state);  // not in a row any more
    scaler.skipped(state, "fc.bias", 50);
    scaler.skipped(state, "fc.bias", 50);
    const std::string message = failure_of([&] { scaler.skipped(state, "fc.bias", 50); });
    CHECK_THAT(message, contains("3 updates in a row were skipped because gradients were not finite"));
    CHECK_THAT(message, contains("fc.bias was the first to go non-finite, at step 50"));
    CHECK_THAT(message, contains("optim.lr"));
    CHECK_THAT(message, contains("train.clip_norm"));
    CHECK_THAT(message, contains("bf16"));
}

TEST_CASE("a scale that falls too low ends the run", "[unit][optim]") {
    const Scaler scaler({.enabled = true, .init = 4, .least = 1});
    ScalerState state = scaler.start();
    scaler.skipped(state, "fc.weight", 7);
    scaler.skipped(state, "fc.weight", 7);
    CHECK(state.scale == 1);
    const std::string message = failure_of([&] { scaler.skipped(state, "fc.weight", 7); });
    CHECK_THAT(message, contains("the loss scale fell to 0.5, below scaler.min=1"));
    CHECK_THAT(message, contains("fc.weight was the first to go non-finite, at step 7"));
}

TEST_CASE("a scaler that is off keeps the scale at 1, and still ends a row of skips", "[unit][optim]") {
    const Scaler scaler({.enabled = false, .init = 1024, .interval = 1, .most_skips = 2});
    ScalerState state = scaler.start();
    CHECK(state == ScalerState{});
    scaler.applied(state);
    CHECK(state == ScalerState{});
    scaler.skipped(state, "w", 1);
    CHECK(state == ScalerState{.scale = 1, .growth = 0, .skips = 1});
    CHECK(!failure_of([&] { scaler.skipped(state, "w", 1); }).empty());
}

TEST_CASE("a resumed scaler goes on only where the saved run had one too", "[unit][optim]") {
    const ScalerState saved{.scale = 512, .growth = 7, .skips = 1};
    const Scaler on({.enabled = true, .init = 1024}), off({.enabled = false, .init = 1024});
    CHECK(on.resume(saved, true) == saved);
    CHECK(on.resume(saved, false) == ScalerState{.scale = 1024});
    CHECK(off.resume(saved, true) == ScalerState{});
    CHECK(off.resume(saved, false) == ScalerState{});
}

TEST_CASE("scaler options out of range are refused by key", "[unit][optim]") {
    CHECK(refusal_of({}).empty());
    CHECK_THAT(refusal_of({.init = 0}), contains("scaler.init=0"));
    CHECK_THAT(refusal_of({.init = 0x1p128}), contains("scaler.init="));
    CHECK_THAT(refusal_of({.growth = 0.5}), contains("scaler.growth=0.5"));
    CHECK_THAT(refusal_of({.backoff = 1}), contains("scaler.backoff=1"));
    CHECK_THAT(refusal_of({.backoff = 0}), contains("scaler.backoff=0"));
    CHECK_THAT(refusal_of({.interval = 0}), contains("scaler.interval=0"));
    CHECK_THAT(refusal_of({.least = 0}), contains("scaler.min=0"));
    CHECK_THAT(refusal_of({.most_skips = 0}), contains("scaler.max_skips=0"));
}
