// SIGTERM and SIGUSR1 as a request to stop in order.
#pragma once

namespace trireme::app {

/// From here on the two signals are noted and no longer end the process.
void note_stop_signals();
/// A pipe that nobody reads any more, and a file at its limit of size, make a write fail, which is reported;
/// they do not end the process.
void let_writes_fail();
/// True once one of the two has reached this process.
bool stop_signal_seen();

}  // namespace trireme::app
