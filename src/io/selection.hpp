// Private to io: intervals of rows and of the flattened whole as selections of a data space.
#pragma once

#include <hdf5.h>

#include "trireme/base/range.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme::io {

void select_rows(hid_t space, const Shape& shape, Range rows);

/// An interval of the flattened whole, as the union of at most 2 rank - 1 boxes. Empty ranges select nothing.
void select_flat(hid_t space, const Shape& shape, Range range);

}  // namespace trireme::io
