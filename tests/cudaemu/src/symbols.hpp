// Names of functions, also of those that are not exported: kernels stand in anonymous namespaces.
#pragma once

#include <string>

namespace trireme::cudaemu {

// As its source writes it; "" where the program was stripped.
std::string symbol(const void* function);

}  // namespace trireme::cudaemu
