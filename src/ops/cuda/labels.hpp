// Labels are data, and may be wrong.
#pragma once

#include <cstdint>

#include "ops/cuda/scalars.hpp"

namespace trireme::cuda {

/// Where sums are in device memory it is not called, and such labels make the loss NaN (the loader has looked
/// at them by then).
/// @throws Error (bad data) that names the first label outside [0, classes) that is not `ignored`. Waits for
/// the device.
void require_labels(CudaDevice& device, Scalars& scalars, const std::int32_t* labels, std::int64_t n,
                    std::int64_t classes, std::int32_t ignored);

}  // namespace trireme::cuda
