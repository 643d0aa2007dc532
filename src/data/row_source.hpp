// Private to data: what the importers have in common. A foreign file is looked through once, for its extents
// and types, and then read from its first row to its last.
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
    std::string x_name = "/x";  ///< what the rows become in the HDF5 files
    Shape sample;
    DType x_type = DType::f32;
    bool has_y = false;
    DType y_type = DType::i32;
    std::int64_t classes = 0;  ///< largest label or token + 1; 0: real targets, negative integers, or none
    bool contiguous_split = false;  ///< neighbouring rows belong together: a split cuts, rather than draws
};

class RowSource {
public:
    virtual ~RowSource() = default;
    const RowTable& table() const { return table_; }
    /// Writes the next rows in the table's types, one behind the other.
    virtual void read(std::int64_t rows, void* x, void* y) = 0;

protected:
    RowTable table_;
};

/// A source that knows one row at a time.
class RowByRowSource : public RowSource {
public:
    void read(std::int64_t rows, void* x, void* y) final;

protected:
    virtual void read_row(void* x, void* y) = 0;
};

std::unique_ptr<RowSource> open_csv(const ImportOptions& options);
std::unique_ptr<RowSource> open_idx(const ImportOptions& options);
std::unique_ptr<RowSource> open_text(const ImportOptions& options);
/// True when the file begins as an IDX file does.
bool looks_like_idx(const std::string& path);
/// True when the name ends as that of a text: its bytes could be anything.
bool looks_like_text(const std::string& path);

/// The type that `dtype` names; `otherwise` for "auto". @throws Error (bad_usage) on other names.
DType import_type(const std::string& dtype, DType otherwise);
/// The sample extents wanted. @throws Error (bad_usage) with both numbers when they do not hold `count`
/// values.
Shape import_shape(const Shape& wanted, const Shape& found);

}  // namespace trireme
