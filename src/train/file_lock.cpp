#include "train/file_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "trireme/base/error.hpp"

namespace trireme {

FileLock::FileLock(const std::string& path, bool wait)
    : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw failure(path + ": is not writable");
    if (flock(file_, LOCK_EX | (wait ? 0 : LOCK_NB)) == 0) return;
    close(file_);
    file_ = -1;
    if (wait) throw failure(path + ": cannot be locked");
}

FileLock::~FileLock() {
    if (file_ >= 0) close(file_);
}

}  // namespace trireme
