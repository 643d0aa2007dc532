#include "trireme/base/float_mode.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace trireme {

void flush_denormals_to_zero() {
#if defined(__SSE__)
    constexpr unsigned flush_results = 0x8000, zero_operands = 0x0040;
    _mm_setcsr(_mm_getcsr() | flush_results | zero_operands);
#endif
}

}  // namespace trireme
