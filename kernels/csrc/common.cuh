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

// ---- requests -------------------------------------------------------------------------------------------------------

// Both tensors are int32. Of int64 ones the low halves are read: the host doubles their strides, and no length or offset
// reaches 2^31. `kv_lens` holds lengths [count] or, if `cumulative`, offsets [count + 1]; cum_seq_lens [count + 1].
template <typename S>
struct Requests {
  const int* kv_lens;  // or null: nothing is known of the requests
  const int* cum_seq_lens;
  S kv_stride, cum_stride;
  u32 count;
  u32 cumulative;

  __device__ __forceinline__ int begin(u32 request) const { return cum_seq_lens[request * cum_stride]; }
  __device__ __forceinline__ int kv_len(u32 request) const {
    const int len = kv_lens[request * kv_stride];
    return cumulative ? kv_lens[(request + 1) * kv_stride] - len : len;
  }
};

// Whether `token` belongs to a request of no KV. Tokens outside cum_seq_lens belong to none.
template <typename S>
__device__ __forceinline__ bool has_no_kv(const Requests<S>& requests, int token) {
  if (!requests.count || token < requests.begin(0)) return false;
  u32 low = 0, high = requests.count;  // the first request that ends past the token; `count` if none
  while (low < high) {
    const u32 mid = (low + high) >> 1;
    if (requests.begin(mid + 1) <= token)
      low = mid + 1;
    else
      high = mid;
  }
  return low < requests.count && requests.kv_len(low) <= 0;
}

struct Run {
  int end;     // the first token past the run
  bool no_kv;  // what is true of every token of it
};

// The run of tokens alike that `token` is in. For a whole warp, which looks for one token, 32 requests at a time with both
// tensors on their way at once: two levels of 32 cover 1024 requests.
template <typename S>
__device__ __forceinline__ Run find_run(const Requests<S>& requests, int token) {
  if (!requests.count) return {0x7fffffff, false};
  const u32 lane = threadIdx.x & 31;
  const int begin = requests.begin(0);
  u32 low = 0, left = requests.count, step, passed;
  int end, kv;
  do {  // the request lies in [low, low + left), or there is none
    step = (left + 31) >> 5;
    const u32 request = min(low + (lane + 1) * step, requests.count) - 1;
    end = requests.begin(request + 1);
    kv = requests.kv_len(request);
    passed = __popc(__ballot_sync(kAllLanes, (lane + 1) * step <= left && end <= token));
    low += passed * step;
    left = min(step, left - passed * step);
  } while (step > 1);
  end = __shfl_sync(kAllLanes, end, passed);
  kv = __shfl_sync(kAllLanes, kv, passed);
  if (token < begin) return {begin, false};
  return low < requests.count ? Run{end, kv <= 0} : Run{0x7fffffff, false};
}

// has_no_kv for the tokens of a whole warp, which do not fall from lane to lane and mostly share a request.
template <typename S>
__device__ __forceinline__ bool has_no_kv_warp(const Requests<S>& requests, int token) {
  const Run run = find_run(requests, __shfl_sync(kAllLanes, token, 0));
  return token < run.end ? run.no_kv : has_no_kv(requests, token);
}

// ---- elements -------------------------------------------------------------------------------------------------------

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
