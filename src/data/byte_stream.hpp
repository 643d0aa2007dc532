// Private to data: the bytes of a file, plain or gzip, from the first on.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

struct gzFile_s;

namespace trireme {

class ByteStream {
public:
    /// @throws Error (bad_data) naming the file when it cannot be opened.
    explicit ByteStream(const std::string& path);

    /// Reads up to `bytes`; fewer only at the end. @throws Error (bad_data) when a gzip file is damaged or
    /// ends early.
    std::size_t read(void* to, std::size_t bytes);
    const std::string& path() const { return path_; }

private:
    struct Close {
        void operator()(gzFile_s* file) const;
    };

    std::string path_;
    std::unique_ptr<gzFile_s, Close> file_;
};

}  // namespace trireme
