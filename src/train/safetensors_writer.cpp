#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <system_error>

#include "train/safetensors.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

/// The eight bytes and the header, filled up with blanks so that the elements begin at a multiple of eight.
std::string head_of(const std::vector<SafetensorsEntry>& tensors, const SafetensorsMetadata& metadata,
                    std::int64_t& data_bytes) {
    nlohmann::ordered_json json;
    if (!metadata.empty()) json["__metadata__"] = metadata;
    data_bytes = 0;
    for (const SafetensorsEntry& tensor : tensors) {
        const std::int64_t begin = data_bytes;
        data_bytes += tensor.shape.count() * static_cast<std::int64_t>(size_of(tensor.dtype));
        json[tensor.name] = {{"dtype", safetensors_name(tensor.dtype)},
                             {"shape", std::vector<std::int64_t>(tensor.shape.begin(), tensor.shape.end())},
                             {"data_offsets", {begin, data_bytes}}};
    }
    std::string text = json.is_null() ? "{}" : json.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    const std::uint64_t length = text.size();
    std::string head(sizeof length, '\0');
    std::memcpy(head.data(), &length, sizeof length);
    return head + text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<SafetensorsEntry>& tensors,
                                     const SafetensorsMetadata& metadata)
    : path_(path) {
    const std::string head = head_of(tensors, metadata, expected_);
    std::array<char, 16> suffix{};
    std::snprintf(suffix.data(), suffix.size(), ".tmp-%08x", static_cast<unsigned>(std::random_device{}()));
    temporary_ = path + suffix.data();
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file_ < 0) fail("cannot be created", errno);
    expected_ += static_cast<std::int64_t>(head.size());
    try {
        write(head.data(), static_cast<std::int64_t>(head.size()));
    } catch (...) {
        close(file_);
        std::remove(temporary_.c_str());
        throw;
    }
}

SafetensorsWriter::~SafetensorsWriter() {
    if (file_ < 0) return;
    close(file_);
    std::remove(temporary_.c_str());
}

void SafetensorsWriter::fail(const std::string& what, int code) const {
    throw failure(path_ + ": " + what + (code != 0 ? ": " + std::generic_category().message(code) : ""));
}

void SafetensorsWriter::write(const void* from, std::int64_t bytes) {
    for (std::int64_t done = 0; done < bytes;) {
        const auto put =
            ::write(file_, static_cast<const char*>(from) + done, static_cast<std::size_t>(bytes - done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) fail("cannot be written", errno);
        done += put;
        written_ += put;
    }
}

std::int64_t SafetensorsWriter::finish() {
    if (written_ != expected_)
        fail(std::to_string(written_) + " bytes were written where the tensors take " +
                 std::to_string(expected_),
             0);
    if (fsync(file_) != 0) fail("cannot be written", errno);
    const int closed = close(std::exchange(file_, -1));
    if (closed != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
        const int code = errno;
        std::remove(temporary_.c_str());
        fail("cannot be written", code);
    }
    return written_;
}

}  // namespace trireme
