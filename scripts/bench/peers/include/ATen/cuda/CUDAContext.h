// Stand-in, found before torch's own, which drags in cuBLAS, cuSPARSE and cuSOLVER: all that the release's op uses of it.
#pragma once
#include <c10/cuda/CUDAStream.h>

namespace at::cuda {
using c10::cuda::getCurrentCUDAStream;
}
