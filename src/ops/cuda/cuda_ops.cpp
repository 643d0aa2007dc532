#include "ops/cuda/cuda_ops.hpp"

#include <cublasLt.h>

#include "ops/backends.hpp"
#include "tensor/cuda/errors.hpp"

namespace trireme {
namespace cuda {

CudaOps::CudaOps(CudaDevice& device)
    : device_(device),
      gemm_(device),
      scalars_(device),
      scratch_(device),
      wide_scratch_(device),
      patch_scratch_(device),
      kernel_scratch_(device) {}

std::string CudaOps::description() const {
    const std::size_t version = cublasLtGetVersion();
    return device_.model() + ", cuBLASLt " + std::to_string(version / 10000) + "." +
           std::to_string(version / 100 % 100) + "." + std::to_string(version % 100);
}

bool CudaOps::native(DType type) const {
    return type == DType::f32 || type == DType::bf16 || type == DType::f16;
}

void CudaOps::zero(float* data, std::int64_t n) {
    if (n > 0)
        check(cudaMemsetAsync(data, 0, static_cast<std::size_t>(n) * sizeof(float), device_.stream()),
              "cudaMemsetAsync");
}

}  // namespace cuda

std::unique_ptr<Ops> make_cuda_ops(Device& device, int) {
    return std::make_unique<cuda::CudaOps>(static_cast<cuda::CudaDevice&>(device));
}

}  // namespace trireme
