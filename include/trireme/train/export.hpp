// The weights of a checkpoint as a safetensors file, which PyTorch and many other programs read.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/comm/communicator.hpp"
#include "trireme/tensor/dtype.hpp"

namespace trireme {

struct ExportOptions {
    DType dtype = DType::f32;  ///< f32 (the same bits), or bf16 (rounded to nearest, ties to even)
    bool average = false;      ///< the moving average of the weights
};

struct ExportedWeights {
    std::int64_t tensors = 0, elements = 0, bytes = 0;
};

/// Writes `output` under a temporary name and renames it. Names and shapes: doc/safetensors.md. Collective;
/// one rank works. @throws Error (all ranks): bad_data for the checkpoint, bad_usage naming an output that is
/// no regular file, failed when it cannot be written.
ExportedWeights export_weights(Communicator& comm, const std::string& checkpoint, const std::string& output,
                               const ExportOptions& options);

}  // namespace trireme
