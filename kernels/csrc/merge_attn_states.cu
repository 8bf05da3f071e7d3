// Merges two partial attention results by their LSE, one pass over memory: a thread owns one pack of one (token, head).
//
// Both value loads are issued beside the LSE loads (the latency of a dependent load would double the time of a small
// merge) and the values of an empty side are dropped by selection, never by a weight of 0: 0 * NaN is NaN. Only what
// the host or kv_lens already call empty is not read at all. Why it looks as it does, with figures: docs/kernels.md.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;

// Packed by kernels/parameters.py in this order. What every thread reads comes first: each cache line of parameters is a miss at
// the start of a launch. S: u32 where positions in packs fit, else i64; on the scalar path a pack is one element.
template <typename S>
struct MergeParams {
  void* output;
  const void* prefix;
  const void* suffix;
  float* output_lse;  // or null
  const float* prefix_lse;
  const float* suffix_lse;
  Strides3<S> output_stride, prefix_stride, suffix_stride;  // in packs
  LseStrides<S> output_lse_stride, prefix_lse_stride, suffix_lse_stride;
  S packs;                // tokens * heads * packs per (token, head)
  S tokens_with_context;  // from here on: copy the suffix
  S unused;
  FastDiv per_token, per_head;  // packs per token, packs per (token, head)
  u32 flags, unused_too;
  const float* output_scale;  // FP8 output only
  Requests<S> requests;
};
using PackParams = MergeParams<u32>;
using ScalarParams = MergeParams<i64>;
static_assert(sizeof(PackParams) == 192 && sizeof(ScalarParams) == 272, "kernels/parameters.py has as many bytes");

constexpr u32 kBase2 = 1;
constexpr float kLn2 = 0.693147180559945309f;

// ---- one row --------------------------------------------------------------------------------------------------------

// What becomes of a row, decided by its two LSEs.
struct Weights {
  float prefix, suffix;  // where neither side is empty
  float top, sum;        // the merged LSE is top + log(sum)
  bool no_prefix, no_suffix, both;
};

// By the reciprocal of a divisor in [1, 2]: what IEEE division does, without its branches.
__device__ __forceinline__ float quotient(float a, float b, float reciprocal) {
  float q = a * reciprocal;
  q = fmaf(fmaf(-b, q, a), reciprocal, q);
  return fmaf(fmaf(-b, q, a), reciprocal, q);
}

__device__ __forceinline__ Weights weigh(float x, float s, bool skip_prefix, bool copy_suffix, bool base2) {
  Weights w;
  // FlashAttention 2 says +inf for an empty row.
  w.no_prefix = skip_prefix || isinf(x);
  w.no_suffix = !copy_suffix && isinf(s);
  w.both = !w.no_prefix && !w.no_suffix;
  w.top = w.no_prefix ? (w.no_suffix ? neg_inf() : s) : x;
  if (w.both) {
    // The larger weight is exp(0) / sum: one exponential, of a difference that no scaling has rounded before.
    const float distance = fabsf(x - s), e = expf(base2 ? -distance * kLn2 : -distance);
    w.top = fmaxf(x, s);
    w.sum = 1.f + e;
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(w.sum));
    reciprocal = fmaf(fmaf(-w.sum, reciprocal, 1.f), reciprocal, reciprocal);
    const float large = quotient(1.f, w.sum, reciprocal), small = quotient(e, w.sum, reciprocal);
    w.prefix = x >= s ? large : small;
    w.suffix = x >= s ? small : large;
  }
  return w;
}

template <typename S>
__device__ __forceinline__ S position(const LseStrides<S>& s, S token, u32 head) {
  return token * s.token + head * s.head;
}

template <typename S>
__device__ __forceinline__ void store_lse(const MergeParams<S>& p, const Weights& w, S token, u32 head) {
  if (!p.output_lse) return;
  // Nothing is scaled in base e, and nothing added to one side's: a copied LSE is copied bit for bit.
  float lse = p.flags & kBase2 ? w.top * kLn2 : w.top;
  if (w.both) lse += logf(w.sum);
  p.output_lse[position(p.output_lse_stride, token, head)] = lse;
}

// ---- 16 bytes at a time ---------------------------------------------------------------------------------------------

template <typename T>
__device__ __forceinline__ float2 unpack(u32 word);
template <>
__device__ __forceinline__ float2 unpack<__nv_bfloat16>(u32 word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000)};
}
template <>
__device__ __forceinline__ float2 unpack<__half>(u32 word) {
  return __half22float2(*reinterpret_cast<__half2*>(&word));
}

__device__ __forceinline__ u32 pack(float2 x, __nv_bfloat16) {
  const __nv_bfloat162 pair = __float22bfloat162_rn(x);
  return *reinterpret_cast<const u32*>(&pair);
}
__device__ __forceinline__ u32 pack(float2 x, __half) {
  const __half2 pair = __float22half2_rn(x);
  return *reinterpret_cast<const u32*>(&pair);
}

// The elements of both packs as floats, weighted and added where neither side is empty.
template <typename T>
__device__ __forceinline__ float2 mix(u32 a, u32 b, const Weights& w) {
  const float2 x = unpack<T>(a), y = unpack<T>(b);
  return {x.x * w.prefix + y.x * w.suffix, x.y * w.prefix + y.y * w.suffix};
}

// kKv: kv_lens is given. One pack per thread and no loop: blocks that start in order keep the accesses of the whole chip
// in a narrow window, which a persistent grid does not.
template <typename T, bool kFp8, bool kKv>
__device__ __forceinline__ void merge_packs(const PackParams& p) {
  u32 i = blockIdx.x * kThreads + threadIdx.x;
  const bool surplus = i >= p.packs;
  if (!kKv && surplus) return;
  if (kKv) i = min(i, p.packs - 1);  // whole warps look requests up
  const u32 token = divide(i, p.per_token), rest = i - token * p.per_token.divisor;
  const u32 head = divide(rest, p.per_head), k = rest - head * p.per_head.divisor;

  const auto at = [&](const Strides3<u32>& s) { return token * s.token + head * s.head + k; };
  const bool copy_suffix = token >= p.tokens_with_context;
  const bool skip_prefix = (kKv && has_no_kv_warp(p.requests, token)) || copy_suffix;
  if (kKv && surplus) return;
  const Pack suffix = static_cast<const Pack*>(p.suffix)[at(p.suffix_stride)];
  const float s = p.suffix_lse[position(p.suffix_lse_stride, token, head)];
  Pack prefix;
  float x = neg_inf();
  if (!skip_prefix) {
    prefix = static_cast<const Pack*>(p.prefix)[at(p.prefix_stride)];
    x = p.prefix_lse[position(p.prefix_lse_stride, token, head)];
  }
  const Weights w = weigh(x, s, skip_prefix, copy_suffix, p.flags & kBase2);
  Pack chosen;
#pragma unroll
  for (int j = 0; j < 4; ++j) chosen.word[j] = w.no_prefix ? (w.no_suffix ? 0 : suffix.word[j]) : prefix.word[j];

  if constexpr (kFp8) {
    const float inverse = 1.f / *p.output_scale;
    alignas(8) unsigned char bytes[kPackElements<T>];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if constexpr (sizeof(T) == 4) {
        const float a = __uint_as_float(prefix.word[j]), b = __uint_as_float(suffix.word[j]);
        bytes[j] = to_fp8((w.both ? a * w.prefix + b * w.suffix : __uint_as_float(chosen.word[j])) * inverse);
      } else {
        const float2 y = w.both ? mix<T>(prefix.word[j], suffix.word[j], w) : unpack<T>(chosen.word[j]);
        bytes[2 * j] = to_fp8(y.x * inverse);
        bytes[2 * j + 1] = to_fp8(y.y * inverse);
      }
    }
    unsigned char* const out = static_cast<unsigned char*>(p.output) + static_cast<i64>(at(p.output_stride)) * sizeof bytes;
    if constexpr (sizeof(T) == 4)
      *reinterpret_cast<u32*>(out) = *reinterpret_cast<const u32*>(bytes);
    else
      *reinterpret_cast<uint2*>(out) = *reinterpret_cast<const uint2*>(bytes);
  } else {
    if (w.both) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (sizeof(T) == 4)
          chosen.word[j] = __float_as_uint(__uint_as_float(prefix.word[j]) * w.prefix +
                                           __uint_as_float(suffix.word[j]) * w.suffix);
        else
          chosen.word[j] = pack(mix<T>(prefix.word[j], suffix.word[j], w), T{});
      }
    }
    static_cast<Pack*>(p.output)[at(p.output_stride)] = chosen;
  }
  if (k == 0) store_lse(p, w, token, head);
}

// ---- any strides and sizes, one element at a time -------------------------------------------------------------------

template <typename T, bool kFp8>
__device__ __forceinline__ void merge_scalar(const ScalarParams& p) {
  const i64 step = static_cast<i64>(gridDim.x) * kThreads;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < p.packs; i += step) {
    const i64 token = i / p.per_token.divisor;
    const u32 rest = static_cast<u32>(i - token * p.per_token.divisor), head = divide(rest, p.per_head);
    const u32 k = rest - head * p.per_head.divisor;
    const auto at = [&](const Strides3<i64>& s) { return token * s.token + head * s.head + k * s.dim; };
    const bool copy_suffix = token >= p.tokens_with_context;
    const bool skip_prefix = copy_suffix || (p.requests.kv_lens && has_no_kv(p.requests, static_cast<int>(token)));
    const T suffix = static_cast<const T*>(p.suffix)[at(p.suffix_stride)];
    const T prefix = skip_prefix ? suffix : static_cast<const T*>(p.prefix)[at(p.prefix_stride)];
    const float s = p.suffix_lse[position(p.suffix_lse_stride, token, head)];
    const float x = skip_prefix ? neg_inf() : p.prefix_lse[position(p.prefix_lse_stride, token, head)];
    const Weights w = weigh(x, s, skip_prefix, copy_suffix, p.flags & kBase2);
    const T chosen = w.no_prefix ? (w.no_suffix ? from_float<T>(0.f) : suffix) : prefix;
    const float mixed = to_float(prefix) * w.prefix + to_float(suffix) * w.suffix;
    if constexpr (kFp8) {
      const float inverse = 1.f / *p.output_scale;
      static_cast<unsigned char*>(p.output)[at(p.output_stride)] = to_fp8((w.both ? mixed : to_float(chosen)) * inverse);
    } else {
      static_cast<T*>(p.output)[at(p.output_stride)] = w.both ? from_float<T>(mixed) : chosen;
    }
    if (k == 0) store_lse(p, w, token, head);
  }
}

}  // namespace attnfix

// The plain entry points move 16 bytes at a time and need aligned rows; _kv also looks requests up. The _scalar ones take
// any strides and sizes.
#define ATTNFIX_KERNEL(name, Params, ...)                                        \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads, 8)             \
      merge_attn_states_##name(const __grid_constant__ attnfix::Params p) {      \
    attnfix::__VA_ARGS__(p);                                                     \
  }
#define ATTNFIX_MERGE(name, T, kFp8)                                  \
  ATTNFIX_KERNEL(name, PackParams, merge_packs<T, kFp8, false>)       \
  ATTNFIX_KERNEL(name##_kv, PackParams, merge_packs<T, kFp8, true>)   \
  ATTNFIX_KERNEL(name##_scalar, ScalarParams, merge_scalar<T, kFp8>)
#define ATTNFIX_MERGE_ALL(name, T) \
  ATTNFIX_MERGE(name, T, false)    \
  ATTNFIX_MERGE(name##_fp8, T, true)
ATTNFIX_MERGE_ALL(bf16, __nv_bfloat16)
ATTNFIX_MERGE_ALL(f16, __half)
ATTNFIX_MERGE_ALL(f32, float)
