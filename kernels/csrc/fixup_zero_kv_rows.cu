// Rows of requests without KV get out 0 and LSE -inf, in place, in one launch.
//
// Every block finds the empty requests itself (the host must not know them: that would be a sync), builds the prefix
// sum of their row counts in shared memory, and takes every gridDim-th unit of the empty rows. So rows of other
// requests cost nothing, and one long request is spread over the grid like any other rows.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr int kChunk = kThreads * kPerThread;  // requests looked at together

// Packed by kernels/ops.py in this order.
struct FixupParams {
  void* out;
  float* lse;
  IndexTensor kv;   // kv_lens [B], or cum_kv_lens [B + 1]
  IndexTensor cum;  // cum_seq_lens [B + 1]
  i64 tokens, requests;
  Strides3 out_stride;
  LseStrides lse_stride;
  FastDiv per_head;  // packs per (token, head)
  u32 row_packs;     // packs per token
  u32 unit_packs;    // packs per unit of work; a row is `units` of them
  u32 units;
  u32 flags;
  u32 unused;
};
static_assert(sizeof(FixupParams) == 136, "kernels/ops.py packs 136 bytes");

constexpr u32 kKvWide = 1, kCumWide = 2, kKvIsCumulative = 4;

__device__ __forceinline__ i64 clamp_row(i64 row, i64 tokens) { return row < 0 ? 0 : (row > tokens ? tokens : row); }

__device__ __forceinline__ bool is_empty(const FixupParams& p, i64 request) {
  const bool wide = p.flags & kKvWide;
  i64 len = load_index(p.kv, request, wide);
  if (p.flags & kKvIsCumulative) len = load_index(p.kv, request + 1, wide) - len;
  return len <= 0;
}

// Inclusive prefix sum over the block; every thread also gets the total.
__device__ __forceinline__ i64 block_scan(i64 value, i64* warp_sums, i64* total) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int d = 1; d < 32; d <<= 1) {
    const i64 left = __shfl_up_sync(0xffffffffu, value, d);
    if (lane >= d) value += left;
  }
  if (lane == 31) warp_sums[warp] = value;
  __syncthreads();
  i64 before = 0, sum = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) before = sum;
    sum += warp_sums[w];
  }
  *total = sum;
  return before + value;
}

template <typename T, int kVec>
__device__ __forceinline__ void fixup(const FixupParams& p) {
  __shared__ i64 ends[kChunk];    // empty rows up to and with this request of the chunk
  __shared__ i64 shifts[kChunk];  // token = shift + index among the chunk's empty rows
  __shared__ i64 warp_sums[kThreads / 32];
  const bool wide = p.flags & kCumWide;
  T* const out = static_cast<T*>(p.out);
  i64 turn = 0;  // units handed out in earlier chunks, modulo the grid: keeps the blocks even

  for (i64 chunk = 0; chunk < p.requests; chunk += kChunk) {
    i64 begin[kPerThread], rows[kPerThread], mine = 0;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const i64 b = chunk + threadIdx.x * kPerThread + j;
      begin[j] = rows[j] = 0;
      if (b < p.requests && is_empty(p, b)) {
        begin[j] = clamp_row(load_index(p.cum, b, wide), p.tokens);
        const i64 end = clamp_row(load_index(p.cum, b + 1, wide), p.tokens);
        rows[j] = end > begin[j] ? end - begin[j] : 0;
      }
      mine += rows[j];
    }
    // A barrier too: nobody still reads the previous chunk's shared arrays after it.
    if (!__syncthreads_or(mine > 0)) continue;
    i64 total;
    i64 end = block_scan(mine, warp_sums, &total) - mine;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      shifts[threadIdx.x * kPerThread + j] = begin[j] - end;
      end += rows[j];
      ends[threadIdx.x * kPerThread + j] = end;
    }
    __syncthreads();

    const i64 work = total * p.units;
    i64 unit = static_cast<i64>(blockIdx.x) - turn;
    if (unit < 0) unit += gridDim.x;
    for (; unit < work; unit += gridDim.x) {
      const i64 row = work <= kMaxFastIndex ? static_cast<u32>(unit) / p.units : unit / p.units;
      int low = 0;  // the first request whose end lies past this row
#pragma unroll
      for (int step = kChunk / 2; step > 0; step >>= 1)
        if (ends[low + step - 1] <= row) low += step;
      const i64 token = shifts[low] + row;
      T* const out_row = out + token * p.out_stride.token;
      const u32 first = static_cast<u32>(unit - row * p.units) * p.unit_packs;
      const u32 last = min(first + p.unit_packs, p.row_packs);
      for (u32 k = first + threadIdx.x; k < last; k += kThreads) {
        const u32 head = divide(k, p.per_head), pack = k - head * p.per_head.divisor;
        T* const at = out_row + head * p.out_stride.head + static_cast<i64>(pack * kVec) * p.out_stride.dim;
        *reinterpret_cast<Pack<T, kVec>*>(at) = Pack<T, kVec>{};
        if (pack == 0) p.lse[token * p.lse_stride.token + head * p.lse_stride.head] = neg_inf();
      }
    }
    turn = (turn + work) % gridDim.x;
  }
}

}  // namespace attnfix

// Zero is all bits zero in every format, so entry points differ by element size alone. The plain ones write 16 bytes at
// a time and need aligned rows; the _scalar ones take any strides.
#define ATTNFIX_FIXUP(name, T, kVec)                                                        \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads)                           \
      fixup_zero_kv_rows_##name(const __grid_constant__ attnfix::FixupParams p) { \
    attnfix::fixup<T, kVec>(p);                                                             \
  }
ATTNFIX_FIXUP(b16, unsigned short, 8)
ATTNFIX_FIXUP(b32, unsigned int, 4)
ATTNFIX_FIXUP(b16_scalar, unsigned short, 1)
ATTNFIX_FIXUP(b32_scalar, unsigned int, 1)
