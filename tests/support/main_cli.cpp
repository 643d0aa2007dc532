// The main of trireme_cli_tests: one ordinary process, which starts the program under test.
#include "support/process.hpp"
#include "support/run_catch.hpp"

int main(int argc, char** argv) {
    trireme::testing::start_environment();  // before a test initializes MPI here and so changes it
    return trireme::testing::run_catch(argc, argv, true);
}
