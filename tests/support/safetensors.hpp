#pragma once
// Safetensors files for tests, put together and taken apart without the product's own reader and writer.

#include <cstdint>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/process.hpp"

namespace trireme::testing {

struct RawTensor {
    std::string type;
    std::vector<std::int64_t> shape;
    std::string bytes;

    std::vector<float> floats() const {
        std::vector<float> values(bytes.size() / 4);
        std::memcpy(values.data(), bytes.data(), 4 * values.size());
        return values;
    }
};
using RawTensors = std::map<std::string, RawTensor>;

// The length, the header as it stands, and the elements.
inline std::string raw_file(const std::string& header, const std::string& elements) {
    const std::uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), 8) + header + elements;
}

inline std::string raw_file(const RawTensors& tensors,
                            const std::map<std::string, std::string>& metadata = {}) {
    nlohmann::ordered_json header;
    std::string elements;
    if (!metadata.empty()) header["__metadata__"] = metadata;
    for (const auto& [name, tensor] : tensors) {
        const std::size_t begin = elements.size();
        elements += tensor.bytes;
        header[name] = {
            {"dtype", tensor.type}, {"shape", tensor.shape}, {"data_offsets", {begin, elements.size()}}};
    }
    return raw_file(header.dump(), elements);
}

inline nlohmann::json raw_header(const std::string& content) {
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    return nlohmann::json::parse(content.substr(8, length));
}

inline RawTensors read_raw(const std::filesystem::path& path) {
    const std::string content = read_file(path);
    std::uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    RawTensors tensors;
    const nlohmann::json header = raw_header(content);
    for (const auto& [name, entry] : header.items()) {
        if (name == "__metadata__") continue;
        const std::size_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
        tensors[name] = {entry["dtype"], entry["shape"], content.substr(8 + length + begin, end - begin)};
    }
    return tensors;
}

}  // namespace trireme::testing
