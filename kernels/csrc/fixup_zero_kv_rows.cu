// Rows of requests without KV get out 0 and LSE -inf, in place, in one launch.
//
// Every block finds the empty requests itself (the host must not know them: that would be a sync), lists them with the
// sum of their rows in shared memory, and takes every gridDim-th unit of those rows. So rows of other requests cost
// nothing, and one long request is spread over the grid like any other rows. Figures: docs/kernels.md.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;
constexpr int kPerLane = 4;
constexpr int kRound = 32 * kPerLane;  // requests that a warp looks at together
constexpr int kChunk = 1024;           // requests listed together

// Packed by kernels/parameters.py in this order.
struct FixupParams {
  void* out;
  float* lse;
  Requests<i64> requests;
  i64 tokens;
  Strides3<i64> out_stride;  // in packs
  LseStrides<i64> lse_stride;
  FastDiv per_token, per_head;  // packs per token, packs per (token, head)
  u32 unit;                     // packs that a block takes at a time
  u32 unused;
};
static_assert(sizeof(FixupParams) == 136, "kernels/parameters.py has as many bytes");

// Of a chunk's requests those with rows to fill, in order.
struct EmptyRequests {
  int ends[kChunk];    // rows up to and with this request
  int shifts[kChunk];  // token = shift + row
  int rows;            // of all
  int count;

  // Lists the requests from `chunk` on, kChunk at most; by one warp.
  __device__ __forceinline__ void fill(const Requests<i64>& requests, i64 chunk, int tokens) {
    const int lane = threadIdx.x;
    int rows_before = 0, listed = 0;
    const i64 stop = min(chunk + kChunk, static_cast<i64>(requests.count));
#pragma unroll 1
    for (i64 round = chunk; round < stop; round += kRound) {
      int begin[kPerLane], end[kPerLane], kv[kPerLane], mine[kPerLane], rows_here = 0, listed_here = 0;
      const u32 first = static_cast<u32>(round) + lane * kPerLane;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {  // no branch: all loads leave before the first is needed
        const u32 b = min(first + j, requests.count - 1);
        begin[j] = requests.begin(b);
        end[j] = requests.begin(b + 1);
        kv[j] = requests.kv_len(b);
      }
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        begin[j] = min(max(begin[j], 0), tokens);
        end[j] = min(max(end[j], 0), tokens);  // both ends, or the difference of hostile ones overflows
        mine[j] = kv[j] <= 0 && first + j < stop ? max(end[j] - begin[j], 0) : 0;
        rows_here += mine[j];
        listed_here += mine[j] > 0;
      }
      int row = rows_here, at = listed_here;  // up to and with this lane
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const int rows_left = __shfl_up_sync(kAllLanes, row, d), listed_left = __shfl_up_sync(kAllLanes, at, d);
        if (lane >= d) row += rows_left, at += listed_left;
      }
      const int rows_all = __shfl_sync(kAllLanes, row, 31), listed_all = __shfl_sync(kAllLanes, at, 31);
      row += rows_before - rows_here;
      at += listed - listed_here;
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) {
        if (!mine[j]) continue;
        shifts[at] = begin[j] - row;
        row += mine[j];
        ends[at++] = row;
      }
      rows_before += rows_all;
      listed += listed_all;
    }
    if (lane == 0) {
      rows = rows_before;
      count = listed;
    }
  }

  // The request of a row that is not past the last one.
  __device__ __forceinline__ int find(int row) const {
    int low = 0, high = count - 1;
#pragma unroll 1
    while (low < high) {
      const int mid = (low + high) >> 1;
      if (ends[mid] <= row)
        low = mid + 1;
      else
        high = mid;
    }
    return low;
  }
};

// LSE of all rows. A warp takes 32 neighbours in memory and a few steps along the other dimension, so that what shares 32
// bytes is written at once and little is left to compute per element.
__device__ __forceinline__ void fill_lse(const FixupParams& p, const EmptyRequests& requests) {
  constexpr int kSteps = 8;
  const bool tokens_side_by_side = p.lse_stride.token < p.lse_stride.head;
  const int rows = requests.rows, heads = p.per_token.divisor / p.per_head.divisor;
  const int inner = tokens_side_by_side ? rows : heads, outer = tokens_side_by_side ? heads : rows;
  const u32 columns = (inner + 31) / 32, tiles = columns * ((outer + kSteps - 1) / kSteps);
#pragma unroll 1
  for (u32 tile = blockIdx.x * (kThreads / 32) + threadIdx.x / 32; tile < tiles; tile += gridDim.x * (kThreads / 32)) {
    const int group = tile / columns, first = group * kSteps, stop = min(first + kSteps, outer);
    const int in = (tile - group * columns) * 32 + (threadIdx.x & 31);
    if (in >= inner) continue;
    int row = tokens_side_by_side ? in : first, request = requests.find(row);
    const int head = tokens_side_by_side ? first : in;
    float* at = p.lse + static_cast<i64>(requests.shifts[request] + row) * p.lse_stride.token + head * p.lse_stride.head;
    if (tokens_side_by_side) {
#pragma unroll 1
      for (int i = first; i < stop; ++i, at += p.lse_stride.head) *at = neg_inf();
      continue;
    }
    int end = requests.ends[request];
#pragma unroll 1
    for (; row < stop; ++row, at += p.lse_stride.token) {
      if (row == end) {
        at += static_cast<i64>(requests.shifts[request + 1] - requests.shifts[request]) * p.lse_stride.token;
        end = requests.ends[++request];
      }
      *at = neg_inf();
    }
  }
}

__device__ __forceinline__ u32 divide_by(u32 n, const FastDiv& d) { return divide(n, d); }
__device__ __forceinline__ i64 divide_by(i64 n, const FastDiv& d) { return n / d.divisor; }

// Values of all rows. V: a pack. I: counts packs. `turn`: the first unit of this block, then the one it would have had next.
template <typename V, typename I>
__device__ __forceinline__ void fill_values(const FixupParams& p, const EmptyRequests& requests, u32& turn) {
  const u32 row_packs = p.per_token.divisor;
  const I packs = static_cast<I>(requests.rows) * row_packs;
  const u32 step_rows = kThreads / row_packs, step_rest = kThreads - step_rows * row_packs;
  const i64 dim = sizeof(V) == sizeof(Pack) ? 1 : p.out_stride.dim;
  V* const out = static_cast<V*>(p.out);
  const I units = (packs + p.unit - 1) / p.unit;
  I unit = turn;
#pragma unroll 1
  for (; unit < units; unit += gridDim.x) {
    I i = unit * p.unit + threadIdx.x;
    const I stop = min(unit * p.unit + p.unit, packs);
    if (i >= stop) continue;
    int row = static_cast<int>(divide_by(i, p.per_token));
    u32 rest = static_cast<u32>(i - static_cast<I>(row) * row_packs);
    int request = requests.find(row), end = requests.ends[request], shift = requests.shifts[request];
#pragma unroll 1
    for (; i < stop; i += kThreads) {
#pragma unroll 1
      while (row >= end) {
        end = requests.ends[++request];
        shift = requests.shifts[request];
      }
      const u32 head = divide(rest, p.per_head), k = rest - head * p.per_head.divisor;
      out[(shift + row) * p.out_stride.token + head * p.out_stride.head + k * dim] = V{};
      row += step_rows;
      rest += step_rest;
      if (rest >= row_packs) {
        rest -= row_packs;
        ++row;
      }
    }
  }
  turn = static_cast<u32>(unit - units);
}

template <typename V, typename I>
__device__ __forceinline__ void fixup(const FixupParams& p) {
  __shared__ EmptyRequests requests;
  u32 turn = blockIdx.x;  // later chunks go on where earlier ones ended, so the blocks stay even
#pragma unroll 1
  for (i64 chunk = 0; chunk < p.requests.count; chunk += kChunk) {
    if (chunk) __syncthreads();  // nobody still reads the previous chunk's list
    if (threadIdx.x < 32) requests.fill(p.requests, chunk, static_cast<int>(p.tokens));
    __syncthreads();
    if (!requests.rows) continue;
    fill_lse(p, requests);
    fill_values<V, I>(p, requests, turn);
  }
}

}  // namespace attnfix

// Zero is all bits zero in every format, so entry points differ by element size alone. The plain one writes 16 bytes at a
// time, needs aligned rows and counts them in 31 bits; the _scalar ones take any strides and sizes.
#define ATTNFIX_FIXUP(name, V, I)                                                 \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads)                 \
      fixup_zero_kv_rows_##name(const __grid_constant__ attnfix::FixupParams p) { \
    attnfix::fixup<V, attnfix::I>(p);                                             \
  }
ATTNFIX_FIXUP(packs, attnfix::Pack, u32)
ATTNFIX_FIXUP(b16_scalar, unsigned short, i64)
ATTNFIX_FIXUP(b32_scalar, unsigned int, i64)
