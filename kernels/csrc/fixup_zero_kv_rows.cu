// Rows of requests without KV get out 0 and LSE -inf, in place, in one launch.
//
// Every warp finds the empty requests itself (the host must not know them: that would be a sync), 128 at a time, in
// registers. Their rows, put one after another, are cut into units, which the blocks take in turns. So rows of other
// requests cost nothing, and one long request is spread over the grid like any other rows. From sm_90 on the zeros of dense
// rows are bulk stores of a zeroed tile: few threads keep much under way, and a block per multiprocessor will do. The host
// goes by what the code was compiled for. Figures: docs/kernels.md.
#include "common.cuh"

#if __CUDA_ARCH__ >= 900
#define ATTNFIX_BULK 1
#endif

namespace attnfix {

constexpr int kThreads = 128;
constexpr int kPerLane = 4;  // requests

// Packed by kernels/parameters.py in this order.
struct FixupParams {
  void* out;
  float* lse;
  Requests<i64> requests;
  i64 tokens;
  Strides3<i64> out_stride;  // in packs
  LseStrides<i64> lse_stride;
  FastDiv per_token, per_head;  // packs per token, packs per (token, head)
  u32 unit;                     // log2 of the packs that a block takes at a time
  u32 least_unit;               // log2 of how few these may become while blocks would go without
};
static_assert(sizeof(FixupParams) == 136, "kernels/parameters.py has as many bytes");

// A warp's view of the requests that it looks at together: of each the rows to fill, in order.
struct Round {
  static constexpr u32 kRequests = 32 * kPerLane;
  int end[kPerLane];    // rows up to and with this request
  int shift[kPerLane];  // token = shift + row
  int rows;             // of all

  // Sums stop at `tokens`, or those of hostile offsets (which fall, so that rows count twice) would overflow.
  __device__ __forceinline__ Round(const Requests<i64>& requests, u32 first, u32 tokens) {
    const u32 lane = threadIdx.x & 31, mine = first + lane * kPerLane;
    int offset[kPerLane + 1], kv[kPerLane];
#pragma unroll
    for (int j = 0; j <= kPerLane; ++j)  // no branch: all loads leave before the first is needed
      offset[j] = requests.begin(min(mine + j, requests.count));
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) kv[j] = requests.kv_len(min(mine + j, requests.count - 1));
    u32 sum = 0;
#pragma unroll
    for (int j = 0; j <= kPerLane; ++j) offset[j] = min(max(offset[j], 0), static_cast<int>(tokens));
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {  // past the last request both offsets are the same
      if (kv[j] <= 0) sum = min(sum + max(offset[j + 1] - offset[j], 0), tokens);
      end[j] = sum;
    }
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const u32 left = __shfl_up_sync(kAllLanes, sum, d);
      if (lane >= d) sum = min(sum + left, tokens);
    }
    rows = __shfl_sync(kAllLanes, sum, 31);
    u32 before = __shfl_up_sync(kAllLanes, sum, 1);
    if (!lane) before = 0;
    u32 start = before;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      shift[j] = offset[j] - static_cast<int>(start);
      end[j] = start = min(end[j] + before, tokens);
    }
  }

  // The end and the shift of the request of a row: all lanes ask for the same one, below `rows`.
  __device__ __forceinline__ void find(int row, int& its_end, int& its_shift) const {
    int e = end[kPerLane - 1], s = shift[kPerLane - 1];
#pragma unroll
    for (int j = kPerLane - 2; j >= 0; --j)
      if (end[j] > row) e = end[j], s = shift[j];
    const int lane = __ffs(__ballot_sync(kAllLanes, end[kPerLane - 1] > row)) - 1;
    its_end = __shfl_sync(kAllLanes, e, lane);
    its_shift = __shfl_sync(kAllLanes, s, lane);
  }

  // The shift of a row of each lane's own, below `rows`; all lanes call.
  __device__ __forceinline__ int find_own(int row) const {
    int lane = 0;
#pragma unroll
    for (int step = 16; step; step >>= 1)
      if (__shfl_sync(kAllLanes, end[kPerLane - 1], lane + step - 1) <= row) lane += step;
    int s = __shfl_sync(kAllLanes, shift[kPerLane - 1], lane);
#pragma unroll
    for (int j = kPerLane - 2; j >= 0; --j) {
      const int e = __shfl_sync(kAllLanes, end[j], lane), its = __shfl_sync(kAllLanes, shift[j], lane);
      if (e > row) s = its;
    }
    return s;
  }
};

// ---- zeros ----------------------------------------------------------------------------------------------------------

// Each fills `count` packs (or elements) from `begin` on, counted from the token's first; the whole block calls.

#if ATTNFIX_BULK
struct DenseZeros {
  static constexpr u32 kPacks = (8 << 10) / sizeof(Pack);
  u32 tile;

  // The block must meet before the first fill.
  __device__ __forceinline__ DenseZeros() {
    alignas(128) __shared__ Pack zeros[kPacks];
#pragma unroll
    for (u32 i = threadIdx.x; i < kPacks; i += kThreads) zeros[i] = Pack{};
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    tile = static_cast<u32>(__cvta_generic_to_shared(zeros));
  }

  __device__ __forceinline__ void fill(const FixupParams& p, i64 token, u32 begin, u32 count) const {
    if (threadIdx.x >= 32) return;
    Pack* const at = static_cast<Pack*>(p.out) + (token * p.per_token.divisor + begin);
#pragma unroll 1
    for (u32 i = threadIdx.x * kPacks; i < count; i += 32 * kPacks)
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(at + i)),
                   "r"(tile), "r"(min(count - i, kPacks) * static_cast<u32>(sizeof(Pack)))
                   : "memory");
  }

  // The tile must stay until it has been read.
  __device__ __forceinline__ ~DenseZeros() {
    asm volatile("cp.async.bulk.commit_group;\n\tcp.async.bulk.wait_group.read 0;" ::: "memory");
  }
};
#else
struct DenseZeros {
  __device__ __forceinline__ void fill(const FixupParams& p, i64 token, u32 begin, u32 count) const {
    Pack* at = static_cast<Pack*>(p.out) + (token * p.per_token.divisor + begin + threadIdx.x);
    int left = static_cast<int>(count) - static_cast<int>(threadIdx.x);
#pragma unroll 1
    for (; left > 7 * kThreads; left -= 8 * kThreads, at += 8 * kThreads) {
#pragma unroll
      for (int j = 0; j < 8; ++j) at[j * kThreads] = Pack{};
    }
#pragma unroll 1
    for (; left > 0; left -= kThreads, at += kThreads) *at = Pack{};
  }
};
#endif

// Any strides of values V: a pack, or an element.
template <typename V>
struct StridedZeros {
  __device__ __forceinline__ void fill(const FixupParams& p, i64 token, u32 begin, u32 count) const {
    const i64 dim = sizeof(V) == sizeof(Pack) ? 1 : p.out_stride.dim;
    V* const out = static_cast<V*>(p.out) + token * p.out_stride.token;
#pragma unroll 1
    for (u32 i = begin + threadIdx.x; i < begin + count; i += kThreads) {
      const u32 row = divide(i, p.per_token), rest = i - row * p.per_token.divisor;
      const u32 head = divide(rest, p.per_head), k = rest - head * p.per_head.divisor;
      out[row * p.out_stride.token + head * p.out_stride.head + k * dim] = V{};
    }
  }
};

// ---- units ----------------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 divide_by(u32 n, const FastDiv& d) { return divide(n, d); }
__device__ __forceinline__ i64 divide_by(i64 n, const FastDiv& d) { return n / d.divisor; }

__device__ __forceinline__ bool tokens_side_by_side(const FixupParams& p) { return p.lse_stride.token < p.lse_stride.head; }

// A block fills packs [i, stop) of the round's rows, and the LSEs of the heads that begin there unless those lie token by
// token. I: counts packs.
template <typename Zeros, typename I>
__device__ __forceinline__ void fill_unit(const FixupParams& p, const Round& round, const Zeros& zeros, I i, I stop) {
  const u32 row_packs = p.per_token.divisor, head_packs = p.per_head.divisor, heads = row_packs / head_packs;
  int row = static_cast<int>(divide_by(i, p.per_token)), end, shift;
  u32 begin = static_cast<u32>(i - static_cast<I>(row) * row_packs);
#pragma unroll 1
  while (i < stop) {
    round.find(row, end, shift);
    const i64 token = shift + row;
    const u32 count = static_cast<u32>(min(static_cast<I>(end) * row_packs, stop) - i);
    zeros.fill(p, token, begin, count);
    if (!tokens_side_by_side(p)) {
      const u32 last = divide(begin + count + head_packs - 1, p.per_head);
#pragma unroll 1
      for (u32 j = divide(begin + head_packs - 1, p.per_head) + threadIdx.x; j < last; j += kThreads) {
        const u32 its_row = divide(j * head_packs, p.per_token), head = j - its_row * heads;
        p.lse[(token + its_row) * p.lse_stride.token + head * p.lse_stride.head] = neg_inf();
      }
    }
    i += count;
    row = end;
    begin = 0;
  }
}

// LSEs that lie token by token: a warp takes 32 tokens and 8 heads, so that what shares 32 bytes is written at once.
// `turn`: of this block, those that had the fewest units first.
__device__ __forceinline__ void fill_lse(const FixupParams& p, const Round& round, u32 turn) {
  constexpr int kHeads = 8;
  const int heads = p.per_token.divisor / p.per_head.divisor;
  const u32 columns = (round.rows + 31) / 32, tiles = columns * ((heads + kHeads - 1) / kHeads);
#pragma unroll 1
  for (u32 tile = turn + gridDim.x * (threadIdx.x / 32); tile < tiles; tile += gridDim.x * (kThreads / 32)) {
    const int group = tile / columns, first = group * kHeads, stop = min(first + kHeads, heads);
    const int row = (tile - group * columns) * 32 + (threadIdx.x & 31);
    const int shift = round.find_own(min(row, round.rows - 1));
    if (row >= round.rows) continue;
    float* at = p.lse + static_cast<i64>(shift + row) * p.lse_stride.token + first * p.lse_stride.head;
#pragma unroll 1
    for (int i = first; i < stop; ++i, at += p.lse_stride.head) *at = neg_inf();
  }
  __syncwarp();
}

template <typename Zeros, typename I>
__device__ __forceinline__ void fixup(const FixupParams& p) {
  const Zeros zeros;
  u32 turn = blockIdx.x;  // later rounds go on where earlier ones ended, so the blocks stay even
#pragma unroll 1
  for (u32 first = 0; first < p.requests.count; first += Round::kRequests) {
    const Round round(p.requests, first, static_cast<u32>(p.tokens));
    if (!first) __syncthreads();
    if (!round.rows) continue;
    const I packs = static_cast<I>(round.rows) * p.per_token.divisor;
    u32 log2 = p.unit;
#pragma unroll 1
    while (log2 > p.least_unit && (packs - 1) >> (log2 - 1) < gridDim.x) --log2;
    const I units = ((packs - 1) >> log2) + 1;
    I unit = turn;
#pragma unroll 1
    for (; unit < units; unit += gridDim.x) fill_unit(p, round, zeros, unit << log2, min((unit + 1) << log2, packs));
    turn = static_cast<u32>(unit - units);
    if (tokens_side_by_side(p)) fill_lse(p, round, turn);
  }
}

}  // namespace attnfix

// Zero is all bits zero in every format, so entry points differ by layout and element size alone. The first two write packs,
// need aligned rows and count in 31 bits; the first needs rows without gaps. The _scalar ones take any strides and sizes.
#define ATTNFIX_FIXUP(name, Zeros, I)                                             \
  extern "C" __global__ void __launch_bounds__(attnfix::kThreads)                 \
      fixup_zero_kv_rows_##name(const __grid_constant__ attnfix::FixupParams p) { \
    attnfix::fixup<attnfix::Zeros, attnfix::I>(p);                                \
  }
ATTNFIX_FIXUP(dense, DenseZeros, u32)
ATTNFIX_FIXUP(packs, StridedZeros<attnfix::Pack>, u32)
ATTNFIX_FIXUP(b16_scalar, StridedZeros<unsigned short>, i64)
ATTNFIX_FIXUP(b32_scalar, StridedZeros<unsigned int>, i64)
