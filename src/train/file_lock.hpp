// A file that one process holds at a time, across jobs, on file systems where flock works.
#pragma once

#include <string>
#include <utility>

namespace trireme {

/// Held until it is destroyed (or the process dies).
class FileLock {
public:
    FileLock() = default;
    /// Creates the file where needed. Waits for it, or gives up at once where `wait` is false: then nothing
    /// is held. @throws Error when the file cannot be written or locked.
    FileLock(const std::string& path, bool wait);
    ~FileLock();
    FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
    FileLock& operator=(FileLock&& other) noexcept {
        std::swap(file_, other.file_);
        return *this;
    }
    bool held() const { return file_ >= 0; }

private:
    int file_ = -1;
};

}  // namespace trireme
