// What programs with sanitizers need to know of MPI and of the emulation; TSAN_OPTIONS and ASAN_OPTIONS add
// to it.
extern "C" {

// MPI unloads its parts, whose leaks and races could then not be named, nor suppressed.
int dlclose(void*) {
    return 0;
}

// The actors of streams and kernels are no threads that a program would wait for.
const char* __tsan_default_options() {
    return "atexit_sleep_ms=0:report_thread_leaks=0";
}

// Built without -fsanitize=thread, MPI and what is below it look like races and orders that are none.
const char* __tsan_default_suppressions() {
    return "called_from_lib:libmpi.so\n"
           "called_from_lib:libopen-pal.so\n"
           "called_from_lib:libopen-rte.so\n"
           "called_from_lib:libpmix.so\n"
           "called_from_lib:libevent_core\n"
           "called_from_lib:libevent_pthreads\n"
           "race:libmpi\n"
           "race:libopen-pal\n"
           "race:pmix\n"
           "race:mca_\n"
           "mutex:pmix\n"
           "mutex:libmpi\n"
           "mutex:libopen-\n"
           "mutex:mca_\n"
           "deadlock:libmpi\n"
           "deadlock:libopen-\n"
           "deadlock:libpmix\n"
           "deadlock:mca_\n";
}

// MPI keeps what it allocates until the end.
const char* __asan_default_options() {
    return "detect_leaks=0";
}

}  // extern "C"
