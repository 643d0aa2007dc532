#pragma once
// Counts what the program asks of `operator new`, in all threads.

#include <cstdint>

namespace trireme::testing {

struct Allocations {
    std::int64_t ours = 0;  ///< calls since counting began, from anywhere but inside oneDNN
    std::int64_t live = 0;  ///< allocations not yet given back, whoever made them, since counting began
};

/// False under the address sanitizer, which has operators of its own.
bool can_count_allocations();
/// From now on; the counts start at 0.
void count_allocations();
Allocations allocations();

}  // namespace trireme::testing
