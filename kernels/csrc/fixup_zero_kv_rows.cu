// Rows of requests without KV get out 0 and LSE -inf, in place, in one launch.
//
// Every block finds the empty requests itself (the host must not know them: that would be a sync), lists them with the
// prefix sum of their rows in shared memory, and takes every gridDim-th unit of those rows. So rows of other requests
// cost nothing, and one long request is spread over the grid like any other rows.
#include "common.cuh"

namespace attnfix {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;
constexpr int kChunk = kThreads * kPerThread;  // requests looked at together

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

// Rows of the request if it has no KV, else 0; `begin` is the first of them. All loads leave before the first is needed.
__device__ __forceinline__ i64 empty_rows(const FixupParams& p, i64 request, i64* begin) {
  int len = p.kv_lens[request * p.kv_stride];
  const int first = p.cum_seq_lens[request * p.cum_stride], last = p.cum_seq_lens[(request + 1) * p.cum_stride];
  if (p.flags & kKvIsCumulative) len = p.kv_lens[(request + 1) * p.kv_stride] - len;
  *begin = clamp_row(first, p.tokens);
  return len <= 0 ? max(clamp_row(last, p.tokens) - *begin, 0ll) : 0;
}

// A request with rows to fill, and how many rows: both add up in one 64-bit number.
constexpr i64 kOneRequest = 1ll << 48;
constexpr i64 kRows = kOneRequest - 1;

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

// The chunk's requests with rows to fill, in order.
struct EmptyRequests {
  i64 ends[kChunk];    // rows up to and with this request
  i64 shifts[kChunk];  // token = shift + row
  int last;

  // The request of a row that is not past the last one.
  __device__ __forceinline__ int find(i64 row) const {
    int low = 0, high = last;
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

__device__ __forceinline__ u32 divide_by(u32 n, const FastDiv& d) { return divide(n, d); }
__device__ __forceinline__ i64 divide_by(i64 n, const FastDiv& d) { return n / d.divisor; }

// I: u32 where the work is counted in 31 bits, which is several times faster, else i64.

// LSE of `rows` rows, in the order of its memory: neighbours share 32 bytes, which are then written once.
template <typename I>
__device__ __forceinline__ void fill_lse(const FixupParams& p, const EmptyRequests& requests, I rows, I heads) {
  const bool tokens_side_by_side = p.lse_stride.token < p.lse_stride.head;
  const I inner = tokens_side_by_side ? rows : heads, step = static_cast<I>(gridDim.x) * kThreads;
#pragma unroll 4
  for (I i = static_cast<I>(blockIdx.x) * kThreads + threadIdx.x; i < rows * heads; i += step) {
    const I outer = i / inner, rest = i - outer * inner;
    const I row = tokens_side_by_side ? rest : outer, head = tokens_side_by_side ? outer : rest;
    const i64 token = requests.shifts[requests.find(row)] + row;
    p.lse[token * p.lse_stride.token + head * p.lse_stride.head] = neg_inf();
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
  __shared__ i64 warp_sums[kThreads / 32];
  const u32 heads = p.per_token.divisor / p.per_head.divisor;
  u32 turn = blockIdx.x;  // later chunks go on where earlier ones ended, so the blocks stay even

  for (i64 chunk = 0; chunk < p.requests; chunk += kChunk) {
    if (chunk) __syncthreads();  // nobody still reads the previous chunk's list
    i64 begin[kPerThread], rows[kPerThread], mine = 0;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      const i64 b = chunk + threadIdx.x * kPerThread + j;
      rows[j] = b < p.requests ? empty_rows(p, b, &begin[j]) : 0;
      if (rows[j]) mine += kOneRequest + rows[j];
    }
    i64 total, before = block_scan(mine, warp_sums, &total) - mine;
    if (!total) continue;
#pragma unroll
    for (int j = 0; j < kPerThread; ++j) {
      if (!rows[j]) continue;
      const int at = static_cast<int>(before / kOneRequest);
      requests.shifts[at] = begin[j] - (before & kRows);
      before += kOneRequest + rows[j];
      requests.ends[at] = before & kRows;
    }
    if (threadIdx.x == 0) requests.last = static_cast<int>(total / kOneRequest) - 1;
    __syncthreads();

    total &= kRows;
    const i64 packs = total * p.per_token.divisor;
    if (packs <= kMaxFastIndex - p.unit) {
      fill_lse<u32>(p, requests, total, heads);
      fill_values<u32, V, kElements>(p, requests, packs, turn);
    } else {
      fill_lse<i64>(p, requests, total, heads);
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
