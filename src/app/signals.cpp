#include "app/signals.hpp"

#include <signal.h>

#include <atomic>

namespace trireme::app {
namespace {

// The one variable of the program that changes: a signal handler can reach nothing else. All threads look at
// it, and the signal comes to any.
std::atomic<bool> stop_seen = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may not wait");

extern "C" void note_stop(int) {
    stop_seen = true;
}

// Ctrl-C: stop in order; a second one ends at once.
extern "C" void note_interrupt(int) {
    stop_seen = true;
    signal(SIGINT, SIG_DFL);
}

void install(int number, void (*handler)(int)) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;  // a read or write under way goes on
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, nullptr);
}

}  // namespace

void note_stop_signals() {
    install(SIGINT, note_interrupt);
    install(SIGTERM, note_stop);
    install(SIGUSR1, note_stop);
}

void ignore_broken_pipes() {
    install(SIGPIPE, SIG_IGN);
}

bool stop_signal_seen() {
    return stop_seen;
}

}  // namespace trireme::app
