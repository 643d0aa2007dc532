#include "io/selection.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme::io {
namespace {

struct Box {
    hsize_t start[Shape::max_rank] = {};
    hsize_t count[Shape::max_rank] = {};
};

void add_box(hid_t space, const Box& box, bool first) {
    const H5S_seloper_t how = first ? H5S_SELECT_SET : H5S_SELECT_OR;
    if (H5Sselect_hyperslab(space, how, box.start, nullptr, box.count, nullptr) < 0)
        throw failure("HDF5 refused to select a part of a data set");
}

}  // namespace

void select_rows(hid_t space, const Shape& shape, Range rows) {
    if (shape.rank() == 0) {
        H5Sselect_all(space);
        return;
    }
    Box box;
    std::copy(shape.begin(), shape.end(), box.count);
    box.start[0] = static_cast<hsize_t>(rows.begin);
    box.count[0] = static_cast<hsize_t>(rows.size());
    add_box(space, box, true);
}

void select_flat(hid_t space, const Shape& shape, Range range) {
    if (range.empty()) {
        H5Sselect_none(space);
        return;
    }
    const int rank = shape.rank();
    if (rank == 0) {
        H5Sselect_all(space);
        return;
    }
    std::int64_t size[Shape::max_rank];  // elements of one step along each axis
    size[rank - 1] = 1;
    for (int axis = rank - 1; axis > 0; --axis) size[axis - 1] = size[axis] * shape[axis];

    // From each position the outermost axis along which whole steps fit: inwards out, then outwards in.
    bool first = true;
    for (std::int64_t position = range.begin; position < range.end; first = false) {
        int axis = 0;
        while (position % size[axis] != 0 || position + size[axis] > range.end) ++axis;
        const std::int64_t at = position / size[axis] % shape[axis];
        const std::int64_t steps = std::min((range.end - position) / size[axis], shape[axis] - at);
        Box box;
        for (int i = 0; i < rank; ++i) {
            box.start[i] = i > axis ? 0 : static_cast<hsize_t>(position / size[i] % shape[i]);
            box.count[i] = i < axis ? 1 : static_cast<hsize_t>(i == axis ? steps : shape[i]);
        }
        add_box(space, box, first);
        position += steps * size[axis];
    }
}

}  // namespace trireme::io
