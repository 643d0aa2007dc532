// What a capture has recorded, and what may not be done while one is under way.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <thread>
#include <vector>

#include "stream.hpp"

namespace trireme::cudaemu {

struct Node {
    NodeKind kind;
    std::function<std::string()> describe;
    std::function<Op()> make;
    std::vector<std::size_t> needs;  // nodes that come before, by index
    std::size_t lane;                // of the capture's streams, by index; a lane's nodes are a chain
};

struct Capture {
    unsigned long long id = 0;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread = std::this_thread::get_id();
    cudaStream_t origin = nullptr;
    bool invalid = false, over = false;
    std::vector<Node> nodes = {};
    std::vector<cudaStream_t> lanes = {};
};

// Adds work to the capture that the stream is in.
cudaError_t capture(cudaStream_t, Work);

// Capture's part of cudaStreamWaitEvent and cudaEventRecord.
cudaError_t record_captured(cudaEvent_t, cudaStream_t);
cudaError_t wait_captured(cudaStream_t, cudaEvent_t);

// An error where a capture forbids what is called: for calls that may wait or allocate, and for those on a
// capturing stream. The capture is lost then, too.
cudaError_t forbidden();
cudaError_t forbidden_on(cudaStream_t);

// The default stream orders all others, so that nothing of ours may use it: an error in a capture, else the
// end of the program.
cudaError_t default_stream();

}  // namespace trireme::cudaemu
