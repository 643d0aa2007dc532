// Spans as ranges of NVTX, which Nsight Systems shows beside kernels and copies. Without a profiler a range
// costs a few nanoseconds.
#pragma once

#include <nvtx3/nvToolsExt.h>

#include "trireme/base/recorder.hpp"

namespace trireme::cuda {

class NvtxRanges final : public SpanListener {
public:
    void begin(const char* what) override { nvtxRangePushA(what); }
    void end() override { nvtxRangePop(); }
};

}  // namespace trireme::cuda
