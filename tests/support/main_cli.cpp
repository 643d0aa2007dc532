// The main of trireme_cli_tests: one ordinary process, which starts the program under test.
#include "support/catch_main.hpp"
#include "support/process.hpp"

int main(int argc, char** argv) {
    trireme::testing::start_environment();  // before a test initializes MPI here and so changes it
    Catch::Session session;
    if (const int status = session.applyCommandLine(argc, argv)) return status;
    return trireme::testing::run_session(session);
}
