#define CATCH_CONFIG_RUNNER  // in version 2 this also brings the implementation
#include "support/run_catch.hpp"

#include "support/catch.hpp"

namespace trireme::testing {

int run_catch(int argc, char** argv, bool colour) {
    Catch::Session session;
    auto& config = session.configData();
    config.rngSeed = 1;  // the same on all ranks and in every run
#if TRIREME_CATCH_VERSION == 3
    if (!colour) config.defaultColourMode = Catch::ColourMode::None;
#else
    if (!colour) config.useColour = Catch::UseColour::No;
    config.warnings = static_cast<Catch::WarnAbout::What>(config.warnings | Catch::WarnAbout::NoTests);
#endif
    const int status = session.applyCommandLine(argc, argv);
    return status != 0 ? status : session.run();
}

}  // namespace trireme::testing
