#include "data/byte_stream.hpp"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "trireme/base/error.hpp"

namespace trireme {

ByteStream::ByteStream(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_) throw data_error(path + ": cannot be opened: " + std::strerror(errno));
    gzbuffer(file_.get(), 1u << 18);
}

std::size_t ByteStream::read(void* to, std::size_t bytes) {
    constexpr std::size_t most = std::size_t{1} << 30;
    std::size_t done = 0;
    while (done < bytes) {
        const auto piece = static_cast<unsigned>(std::min(bytes - done, most));
        const int got = gzread(file_.get(), static_cast<char*>(to) + done, piece);
        if (got > 0) done += static_cast<std::size_t>(got);
        if (got == static_cast<int>(piece)) continue;
        int code = Z_OK;
        const char* reason = gzerror(file_.get(), &code);
        if (code == Z_BUF_ERROR)
            throw data_error(path_ + ": expected a whole gzip file, found a truncated one");
        if (code == Z_ERRNO) reason = std::strerror(errno);
        if (code != Z_OK && code != Z_STREAM_END) throw data_error(path_ + ": cannot be read: " + reason);
        break;
    }
    return done;
}

void ByteStream::Close::operator()(gzFile_s* file) const {
    gzclose_r(file);
}

}  // namespace trireme
