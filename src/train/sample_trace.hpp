// samples-<rank>.csv: which samples this rank has trained on, for run.trace_samples.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

#include "trireme/data/loader.hpp"

namespace trireme {

class SampleTrace {
public:
    /// Appends. @throws Error when the file cannot be opened.
    explicit SampleTrace(const std::string& path);
    /// One line "step,lane,sample" for every sample.
    void write(std::int64_t step, std::span<const LaneBatch> lanes);

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace trireme
