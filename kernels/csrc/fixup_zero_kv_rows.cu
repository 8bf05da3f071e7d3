// Rows of requests without KV get out 0 and LSE -inf, in place, in one launch.
//
// Every block finds the empty requests itself (the host must not know them: that would be a sync), lists them with the
// sum of their rows in shared memory, and takes every gridDim-th unit of those rows. So rows of other requests cost
// nothing, and one long request is spread over the grid like any other rows.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;
constexpr int kChunk = 1024;  // requests looked at together

// Packed by kernels/ops.py in this order.
struct FixupParams {
  void* out;
  float* lse;
  const int* kv_lens;  // [requests], or offsets [requests + 1]
  const int* cum_seq_lens;
  i64 kv_stride, cum_stride;
  i64 tokens, requests;
  Strides3<i64> out_stride;  // in packs
  LseStrides<i64> lse_stride;
  FastDiv per_token, per_head;  // packs per token, packs per (token, head)
  u32 unit;                     // packs that a block takes at a time, at most
  u32 flags;
};
static_assert(sizeof(FixupParams) == 136, "kernels/ops.py packs 136 bytes");

constexpr u32 kKvIsCumulative = 1;

__device__ __forceinline__ i64 clamp_row(i64 row, i64 tokens) { return row < 0 ? 0 : (row > tokens ? tokens : row); }

// Of a chunk's requests those with rows to fill, in order.
struct EmptyRequests {
  i64 ends[kChunk];    // rows up to and with this request
  i64 shifts[kChunk];  // token = shift + row
  i64 rows;            // of all
  int count;

  // Fills the lists from requests [first, first + count of them up to kChunk), by one warp.
  __device__ __forceinline__ void fill(const FixupParams& p, i64 first) {
    const int lane = threadIdx.x;
    i64 rows_before = 0;
    int listed = 0;
    const i64 stop = min(first + kChunk, p.requests);
#pragma unroll 2
    for (i64 b = first + lane; b - lane < stop; b += 32) {
      i64 begin = 0, mine = 0;
      if (b < stop) {  // all loads leave before the first is needed
        int len = p.kv_lens[b * p.kv_stride];
        const int from = p.cum_seq_lens[b * p.cum_stride], to = p.cum_seq_lens[(b + 1) * p.cum_stride];
        if (p.flags & kKvIsCumulative) len = p.kv_lens[(b + 1) * p.kv_stride] - len;
        begin = clamp_row(from, p.tokens);
        if (len <= 0) mine = max(clamp_row(to, p.tokens) - begin, 0ll);
      }
      i64 end = mine;
#pragma unroll
      for (int d = 1; d < 32; d <<= 1) {
        const i64 left = __shfl_up_sync(kAllLanes, end, d);
        if (lane >= d) end += left;
      }
      end += rows_before;
      const u32 with_rows = __ballot_sync(kAllLanes, mine > 0);
      if (mine > 0) {
        const int at = listed + __popc(with_rows & ((1u << lane) - 1));
        ends[at] = end;
        shifts[at] = begin - (end - mine);
      }
      listed += __popc(with_rows);
      rows_before = __shfl_sync(kAllLanes, end, 31);
    }
    if (lane == 0) {
      rows = rows_before;
      count = listed;
    }
  }

  // The request of a row that is not past the last one.
  __device__ __forceinline__ int find(i64 row) const {
    int low = 0, high = count - 1;
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

// I: u32 where the work is counted in 31 bits, which is several times faster, else i64.
__device__ __forceinline__ u32 divide_by(u32 n, const FastDiv& d) { return divide(n, d); }
__device__ __forceinline__ i64 divide_by(i64 n, const FastDiv& d) { return n / d.divisor; }

// LSE of all rows. A warp takes 32 neighbours in memory and a few steps along the other dimension, so that what shares
// 32 bytes is written at once and little is left to compute per element.
template <typename I>
__device__ __forceinline__ void fill_lse(const FixupParams& p, const EmptyRequests& requests, u32 heads) {
  constexpr u32 kSteps = 16;
  const bool tokens_side_by_side = p.lse_stride.token < p.lse_stride.head;
  const I rows = requests.rows, inner = tokens_side_by_side ? rows : heads, outer = tokens_side_by_side ? heads : rows;
  const I columns = (inner + 31) / 32, tiles = columns * ((outer + kSteps - 1) / kSteps);
  const I warps = static_cast<I>(gridDim.x) * (kThreads / 32);
  for (I tile = static_cast<I>(blockIdx.x) * (kThreads / 32) + (threadIdx.x >> 5); tile < tiles; tile += warps) {
    const I group = tile / columns, first = group * kSteps, stop = min(first + kSteps, outer);
    const I in = (tile - group * columns) * 32 + (threadIdx.x & 31);
    if (in >= inner) continue;
    I row = tokens_side_by_side ? in : first;
    int request = requests.find(row);
    for (I out = first; out < stop; ++out) {
      if (!tokens_side_by_side) {
        row = out;
        while (requests.ends[request] <= row) ++request;
      }
      const i64 token = requests.shifts[request] + row, head = tokens_side_by_side ? out : in;
      p.lse[token * p.lse_stride.token + head * p.lse_stride.head] = neg_inf();
    }
  }
}

// Values of `packs` packs of rows. `turn`: the first unit of this block, then the one it would have had next.
template <typename I, typename V, int kElements>
__device__ __forceinline__ void fill_values(const FixupParams& p, const EmptyRequests& requests, I packs, u32& turn) {
  const u32 row_packs = p.per_token.divisor;
  const u32 step_rows = kThreads / row_packs, step_rest = kThreads - step_rows * row_packs;
  const i64 dim = kElements == 1 ? p.out_stride.dim : 1;
  V* const out = static_cast<V*>(p.out);
  const I size = p.unit, units = (packs + size - 1) / size;
  I unit = turn;
  for (; unit < units; unit += gridDim.x) {
    I i = unit * size + threadIdx.x;
    const I stop = min(unit * size + size, packs);
    if (i >= stop) continue;
    I row = divide_by(i, p.per_token);
    u32 rest = static_cast<u32>(i - row * row_packs);
    int request = requests.find(row);
    for (; i < stop; i += kThreads) {
      while (requests.ends[request] <= row) ++request;
      const i64 token = requests.shifts[request] + row;
      const u32 head = divide(rest, p.per_head), pack = rest - head * p.per_head.divisor;
      out[token * p.out_stride.token + head * p.out_stride.head + pack * dim] = V{};
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

// V: what moves as one access, of kElements elements.
template <typename V, int kElements>
__device__ __forceinline__ void fixup(const FixupParams& p) {
  __shared__ EmptyRequests requests;
  const u32 heads = p.per_token.divisor / p.per_head.divisor;
  u32 turn = blockIdx.x;  // later chunks go on where earlier ones ended, so the blocks stay even

  for (i64 chunk = 0; chunk < p.requests; chunk += kChunk) {
    if (chunk) __syncthreads();  // nobody still reads the previous chunk's list
    if (threadIdx.x < 32) requests.fill(p, chunk);
    __syncthreads();
    const i64 packs = requests.rows * p.per_token.divisor;
    if (!packs) continue;
    if (packs <= kMaxFastIndex - p.unit) {
      fill_lse<u32>(p, requests, heads);
      fill_values<u32, V, kElements>(p, requests, packs, turn);
    } else {
      fill_lse<i64>(p, requests, heads);
      fill_values<i64, V, kElements>(p, requests, packs, turn);
    }
  }
}

}  // namespace attnfix

// Zero is all bits zero in every format, so entry points differ by element size alone. The plain one writes 16 bytes at a
// time and needs aligned rows; the _scalar ones take any strides.
#define ATTNFIX_FIXUP(name, V, kElements)                                        \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads)                \
      fixup_zero_kv_rows_##name(const __grid_constant__ attnfix::FixupParams p) { \
    attnfix::fixup<V, kElements>(p);                                             \
  }
ATTNFIX_FIXUP(packs, attnfix::Pack, 16)
ATTNFIX_FIXUP(b16_scalar, unsigned short, 1)
ATTNFIX_FIXUP(b32_scalar, unsigned int, 1)
