// What both kernels share: index arithmetic, request look-up, and packs of elements.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

namespace attnfix {

using i64 = long long;
using u32 = unsigned int;

constexpr i64 kMaxFastIndex = 0x7fffffff;
constexpr u32 kAllLanes = 0xffffffff;

__device__ __forceinline__ float neg_inf() { return __int_as_float(0xff800000); }

// Unsigned division by a divisor the host knows, for n < 2^31.
struct FastDiv {
  u32 divisor, multiplier, shift;
};

__device__ __forceinline__ u32 divide(u32 n, const FastDiv& d) { return (__umulhi(n, d.multiplier) + n) >> d.shift; }

// Index tensors are int32. Of int64 ones the low halves are read: the host doubles their strides, and no length or offset
// reaches 2^31.

// Strides of a [tokens, heads, head_size] tensor.
template <typename S>
struct Strides3 {
  S token, head, dim;
};

// Element strides of an LSE tensor, whichever of [heads, tokens] and [tokens, heads] it is.
template <typename S>
struct LseStrides {
  S token, head;
};

// 16 bytes that move as one access.
struct alignas(16) Pack {
  u32 word[4];
};

template <typename T>
constexpr int kPackElements = 16 / sizeof(T);

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

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
