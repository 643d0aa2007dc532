// A probe does one thing and may die of it: the tests start it in a process of its own and read what it said.
// Exit status 0: all well; 1: a wrong value, "wrong: ..." on stderr; 3: a call told an error, "told: ...".
#pragma once

#include <cmath>
#include <string>

namespace trireme::sample {

struct Registration {
    Registration(const char* name, void (*run)());
};

// A value that is wrong in silence: what must not happen to go unnoticed.
void expect(const char* what, double value, double wanted, double tolerance = 0);

}  // namespace trireme::sample

#define TRIREME_PROBE(name)                                                        \
    static void name();                                                            \
    static const ::trireme::sample::Registration name##_registration(#name, name); \
    static void name()
