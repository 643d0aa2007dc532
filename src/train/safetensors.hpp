// Files in the safetensors format: eight bytes with the length of the header, the header (JSON: type, shape
// and place of each tensor), then the elements, little-endian, without gaps.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/range.hpp"
#include "trireme/tensor/dtype.hpp"
#include "trireme/tensor/shape.hpp"

namespace trireme {

/// By the name alone; whatever else is taken for a checkpoint.
bool is_safetensors(const std::string& path);

/// "F32", "BF16", ... : what the format calls an element type.
std::string_view safetensors_name(DType type);

struct SafetensorsEntry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape{};
    Range bytes{};  ///< its place after the header
};

using SafetensorsMetadata = std::map<std::string, std::string>;

class SafetensorsFile {
public:
    /// Reads and checks the header. @throws Error (bad_data) naming the file, and the tensor, when it is
    /// missing, cut off, damaged, or has a header beyond 100 MB, or when tensors overlap or leave gaps.
    explicit SafetensorsFile(const std::string& path);
    ~SafetensorsFile();
    SafetensorsFile(const SafetensorsFile&) = delete;
    SafetensorsFile& operator=(const SafetensorsFile&) = delete;

    const std::string& path() const { return path_; }
    const std::vector<SafetensorsEntry>& entries() const {
        return entries_;
    }  ///< in the order of the elements
    /// Nothing where there is no such tensor.
    const SafetensorsEntry* find(const std::string& name) const;
    const SafetensorsMetadata& metadata() const { return metadata_; }
    /// Elements [elements) of a tensor as they are stored.
    void read(const SafetensorsEntry& entry, Range elements, void* to) const;

private:
    void read_bytes(std::int64_t from, std::int64_t count, void* to) const;
    void parse(const std::string& header, std::int64_t data_bytes);
    [[noreturn]] void damaged(const std::string& what) const;

    std::string path_;
    int file_ = -1;
    std::int64_t data_begin_ = 0;
    std::vector<SafetensorsEntry> entries_;
    SafetensorsMetadata metadata_;
};

/// Writes under a temporary name; the file gets its own once it is whole.
class SafetensorsWriter {
public:
    /// The tensors' places follow from their order. @throws Error (failed) naming the path when it cannot be
    /// written.
    SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& tensors,
                      const SafetensorsMetadata& metadata);
    /// Removes what was not finished.
    ~SafetensorsWriter();
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

    /// The next bytes of the elements, tensor after tensor.
    void write(const void* from, std::int64_t bytes);
    /// Hands the file to the disk and gives it its name. Returns its bytes. @throws Error (failed) where less
    /// or more was written than the tensors hold.
    std::int64_t finish();

private:
    [[noreturn]] void fail(const std::string& what, int code) const;

    std::string path_, temporary_;
    int file_ = -1;
    std::int64_t expected_ = 0, written_ = 0;
};

}  // namespace trireme
