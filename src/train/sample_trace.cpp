#include "train/sample_trace.hpp"

#include "trireme/base/error.hpp"

namespace trireme {

SampleTrace::SampleTrace(const std::string& path) : file_(std::fopen(path.c_str(), "a")) {
    if (!file_) throw failure(path + ": cannot be opened for writing");
    std::fseek(file_.get(), 0, SEEK_END);
    if (std::ftell(file_.get()) == 0) std::fputs("step,lane,sample\n", file_.get());
}

void SampleTrace::write(std::int64_t step, std::span<const LaneBatch> lanes) {
    for (const LaneBatch& batch : lanes)
        for (const std::int64_t id : batch.ids)
            std::fprintf(file_.get(), "%lld,%lld,%lld\n", static_cast<long long>(step),
                         static_cast<long long>(batch.lane), static_cast<long long>(id));
    std::fflush(file_.get());
}

}  // namespace trireme
