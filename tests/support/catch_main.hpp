#pragma once
// What only the mains need of Catch2, in either version. To be included before any other header that includes
// Catch2.

#define CATCH_CONFIG_RUNNER
#include "support/catch.hpp"

namespace trireme::testing {

#if TRIREME_CATCH_VERSION == 3
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

// Under a launcher no rank knows whether its output ends up on a terminal.
inline void use_no_colour(Catch::Session& session) {
#if TRIREME_CATCH_VERSION == 3
    session.configData().defaultColourMode = Catch::ColourMode::None;
#else
    session.configData().useColour = Catch::UseColour::No;
#endif
}

// Runs what the command line selected; a selection that matches no test is a failure in both versions.
inline int run_session(Catch::Session& session) {
#if TRIREME_CATCH_VERSION == 2
    const auto warnings = session.configData().warnings | Catch::WarnAbout::NoTests;
    session.configData().warnings = static_cast<Catch::WarnAbout::What>(warnings);
#endif
    return session.run();
}

}  // namespace trireme::testing
