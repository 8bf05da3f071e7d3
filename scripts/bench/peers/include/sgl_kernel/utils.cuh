// Stand-in for sglang's launcher helpers, which need tvm-ffi: a launch on the stream that the caller named.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cmath>

namespace host {

struct LaunchKernel {
  dim3 grid, block;
  cudaStream_t stream;
  LaunchKernel(dim3 grid, dim3 block, cudaStream_t stream) : grid(grid), block(block), stream(stream) {}

  template <typename Kernel, typename... Args>
  void operator()(Kernel kernel, Args... args) const {
    kernel<<<grid, block, 0, stream>>>(args...);
  }
};

}  // namespace host
