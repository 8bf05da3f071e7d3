// What both kernels share: index arithmetic, request look-up, and typed packs of elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace attnfix {

using i64 = long long;
using u32 = unsigned int;

constexpr i64 kMaxFastIndex = 0x7fffffff;

__device__ __forceinline__ float neg_inf() { return __int_as_float(0xff800000); }

// Unsigned division by a divisor the host knows: n / divisor == umulhi(n, multiplier) >> shift for n < 2^31.
struct FastDiv {
  u32 divisor, multiplier, shift;
};

__device__ __forceinline__ u32 divide(u32 n, const FastDiv& d) {
  return d.divisor == 1 ? n : __umulhi(n, d.multiplier) >> d.shift;
}

// A 1-D int32 or int64 tensor, with its stride in elements.
struct IndexTensor {
  const void* data;
  i64 stride;
};

__device__ __forceinline__ i64 load_index(const IndexTensor& t, i64 i, bool wide) {
  return wide ? static_cast<const i64*>(t.data)[i * t.stride] : static_cast<const int*>(t.data)[i * t.stride];
}

// Element strides of a [tokens, heads, head_size] tensor.
struct Strides3 {
  i64 token, head, dim;
};

// Element strides of an LSE tensor, whichever of [heads, tokens] and [tokens, heads] it is.
struct LseStrides {
  i64 token, head;
};

// kVec elements that move as one access; `T` may be any plain type.
template <typename T, int kVec>
struct alignas(sizeof(T) * kVec) Pack {
  T elem[kVec];
};

template <typename T>
__device__ __forceinline__ float to_float(T x) {
  return static_cast<float>(x);
}
template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float<float>(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}

// FP8 e4m3 of x, saturated to +-448; NaN stays NaN.
__device__ __forceinline__ unsigned char to_fp8(float x) {
  return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
}

}  // namespace attnfix
