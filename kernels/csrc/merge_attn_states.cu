// Merges two partial attention results by their LSE, one pass over memory: a thread owns one pack of one (token, head).
//
// Both value loads are issued beside the LSE loads (the latency of a dependent load would double the time of a small
// merge) and the values of an empty side are dropped by selection, never by a weight of 0: 0 * NaN is NaN. Only what
// the host or kv_lens already call empty is not read at all.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;

// Packed by kernels/ops.py in this order.
struct MergeParams {
  void* output;
  const void* prefix;
  const void* suffix;
  float* output_lse;  // or null
  const float* prefix_lse;
  const float* suffix_lse;
  const float* output_scale;  // FP8 output only
  IndexTensor kv_lens;        // data may be null
  IndexTensor cum_seq_lens;
  i64 packs;                // tokens * heads * packs per (token, head)
  i64 tokens_with_context;  // from here on: copy the suffix
  i64 requests;
  Strides3 output_stride, prefix_stride, suffix_stride;
  LseStrides output_lse_stride, prefix_lse_stride, suffix_lse_stride;
  FastDiv per_token, per_head;  // packs per token, packs per (token, head)
  u32 flags;
  u32 unused;
};
static_assert(sizeof(MergeParams) == 264, "kernels/ops.py packs 264 bytes");

constexpr u32 kKvWide = 1, kCumWide = 2, kBase2 = 4;
constexpr float kLn2 = 0.693147180559945309f;

// Whether `token` belongs to a request of no KV. Tokens outside cum_seq_lens belong to none.
__device__ __forceinline__ bool has_no_kv(const MergeParams& p, i64 token) {
  const bool wide = p.flags & kCumWide;
  if (token < load_index(p.cum_seq_lens, 0, wide)) return false;
  i64 low = 0, high = p.requests;  // the first request that ends past the token; `requests` when none does
  while (low < high) {
    const i64 mid = (low + high) >> 1;
    if (load_index(p.cum_seq_lens, mid + 1, wide) <= token)
      low = mid + 1;
    else
      high = mid;
  }
  return low < p.requests && load_index(p.kv_lens, low, p.flags & kKvWide) <= 0;
}

template <typename T, int kVec>
__device__ __forceinline__ Pack<T, kVec> load_pack(const void* base, const Strides3& s, i64 token, u32 head, u32 pack) {
  const i64 at = token * s.token + head * s.head + static_cast<i64>(pack * kVec) * s.dim;
  return *reinterpret_cast<const Pack<T, kVec>*>(static_cast<const T*>(base) + at);
}

__device__ __forceinline__ float load_lse(const float* base, const LseStrides& s, i64 token, u32 head) {
  return base[token * s.token + head * s.head];
}

template <typename T, int kVec, bool kFp8>
__device__ __forceinline__ void merge(const MergeParams& p) {
  using In = Pack<T, kVec>;
  const bool base2 = p.flags & kBase2;
  const i64 step = static_cast<i64>(gridDim.x) * kThreads;
  for (i64 i = static_cast<i64>(blockIdx.x) * kThreads + threadIdx.x; i < p.packs; i += step) {
    const u32 token_packs = p.per_token.divisor;
    const i64 token = p.packs <= kMaxFastIndex ? divide(static_cast<u32>(i), p.per_token) : i / token_packs;
    const u32 rest = static_cast<u32>(i - token * token_packs);
    const u32 head = divide(rest, p.per_head), pack = rest - head * p.per_head.divisor;

    const bool copy_suffix = token >= p.tokens_with_context;
    const bool skip_prefix = copy_suffix || (p.kv_lens.data && has_no_kv(p, token));
    const In suffix = load_pack<T, kVec>(p.suffix, p.suffix_stride, token, head, pack);
    float s = load_lse(p.suffix_lse, p.suffix_lse_stride, token, head);
    In prefix{};
    float x = neg_inf();
    if (!skip_prefix) {
      prefix = load_pack<T, kVec>(p.prefix, p.prefix_stride, token, head, pack);
      x = load_lse(p.prefix_lse, p.prefix_lse_stride, token, head);
      if (isinf(x)) x = neg_inf();  // FlashAttention 2 says +inf for an empty row
    }
    if (!copy_suffix && isinf(s)) s = neg_inf();

    const bool no_prefix = skip_prefix || x == neg_inf();
    const bool no_suffix = !copy_suffix && s == neg_inf();
    In chosen{};  // both empty: 0
    if (no_prefix != no_suffix) chosen = no_prefix ? suffix : prefix;

    float lse = no_prefix ? s : x;
    float wx = 0.f, ws = 0.f;
    const bool both = !no_prefix && !no_suffix;
    if (both) {
      const float top = fmaxf(x, s);
      const float ex = base2 ? exp2f(x - top) : expf(x - top);
      const float es = base2 ? exp2f(s - top) : expf(s - top);
      const float sum = ex + es;
      wx = ex / sum;
      ws = es / sum;
      lse = top + (base2 ? log2f(sum) : logf(sum));
    }
    // Not scaled in base e: a copied LSE is copied bit for bit, NaN payloads included.
    if (base2) lse *= kLn2;

    const i64 at = token * p.output_stride.token + head * p.output_stride.head +
                   static_cast<i64>(pack * kVec) * p.output_stride.dim;
    if constexpr (kFp8) {
      const float inverse = 1.f / *p.output_scale;
      Pack<unsigned char, kVec> out;
#pragma unroll
      for (int j = 0; j < kVec; ++j) {
        const float a = to_float(prefix.elem[j]), b = to_float(suffix.elem[j]);
        out.elem[j] = to_fp8((both ? a * wx + b * ws : to_float(chosen.elem[j])) * inverse);
      }
      *reinterpret_cast<Pack<unsigned char, kVec>*>(static_cast<unsigned char*>(p.output) + at) = out;
    } else {
      if (both) {
#pragma unroll
        for (int j = 0; j < kVec; ++j)
          chosen.elem[j] = from_float<T>(to_float(prefix.elem[j]) * wx + to_float(suffix.elem[j]) * ws);
      }
      *reinterpret_cast<In*>(static_cast<T*>(p.output) + at) = chosen;
    }
    if (pack == 0 && p.output_lse)
      p.output_lse[token * p.output_lse_stride.token + head * p.output_lse_stride.head] = lse;
  }
}

}  // namespace attnfix

// The plain entry points move 16 bytes at a time and need aligned rows; the _scalar ones take any strides.
#define ATTNFIX_MERGE(name, T, kVec, kFp8)                                                  \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads)                           \
      merge_attn_states_##name(const __grid_constant__ attnfix::MergeParams p) {  \
    attnfix::merge<T, kVec, kFp8>(p);                                                       \
  }
#define ATTNFIX_MERGE_ALL(name, T, kVec)          \
  ATTNFIX_MERGE(name, T, kVec, false)             \
  ATTNFIX_MERGE(name##_scalar, T, 1, false)       \
  ATTNFIX_MERGE(name##_fp8, T, kVec, true)        \
  ATTNFIX_MERGE(name##_fp8_scalar, T, 1, true)
ATTNFIX_MERGE_ALL(bf16, __nv_bfloat16, 8)
ATTNFIX_MERGE_ALL(f16, __half, 8)
ATTNFIX_MERGE_ALL(f32, float, 4)
