// Private to data: what the importers have in common. A foreign file is looked through once, for its extents
// and types, and then read row by row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trireme/data/import.hpp"
#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

struct RowTable {
    std::int64_t rows = 0;
    Shape sample;
    DType x_type = DType::f32;
    bool has_y = false;
    DType y_type = DType::i32;
    std::int64_t classes = 0;  ///< largest label + 1; 0: real targets, negative integers, or none
};

class RowSource {
public:
    virtual ~RowSource() = default;
    const RowTable& table() const { return table_; }
    /// Writes the next row in the table's types; called `rows` times.
    virtual void read(void* x, void* y) = 0;

protected:
    RowTable table_;
};

std::unique_ptr<RowSource> open_csv(const ImportOptions& options);
std::unique_ptr<RowSource> open_idx(const ImportOptions& options);
/// True when the file begins as an IDX file does.
bool looks_like_idx(const std::string& path);

/// The type that `dtype` names; `otherwise` for "auto". @throws Error (bad_usage) on other names.
DType import_type(const std::string& dtype, DType otherwise);
/// The sample extents wanted. @throws Error (bad_usage) with both numbers when they do not hold `count`
/// values.
Shape import_shape(const Shape& wanted, const Shape& found);

}  // namespace trireme
