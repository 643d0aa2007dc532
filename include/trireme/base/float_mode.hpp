// How this process treats numbers too small for float32's usual form.
#pragma once

namespace trireme {

/// Denormal numbers become zero, in this thread and in all threads it starts from now on. An optimizer's
/// moments decay towards zero wherever a gradient stays zero, and arithmetic on denormals is tens of times
/// slower. Nothing happens on processors without such a mode.
void flush_denormals_to_zero();

}  // namespace trireme
