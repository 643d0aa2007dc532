#pragma once
// The part of Catch2 that runs tests, behind one function, so that it is compiled once for both executables.

namespace trireme::testing {

// Runs what the command line selects and returns the exit status. Both versions fail when that is no test at
// all.
int run_catch(int argc, char** argv, bool colour);

}  // namespace trireme::testing
