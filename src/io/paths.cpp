#include <glob.h>

#include <algorithm>

#include "trireme/base/parse.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::io {

std::vector<std::string> glob_paths(const std::string& patterns) {
    std::vector<std::string> paths;
    for (const std::string& pattern : split(patterns, ',')) {
        glob_t found{};
        if (glob(pattern.c_str(), GLOB_TILDE, nullptr, &found) == 0)
            paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
        globfree(&found);
    }
    std::sort(paths.begin(), paths.end());
    paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
    return paths;
}

}  // namespace trireme::io
