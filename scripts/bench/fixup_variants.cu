// Variants of fixup_zero_kv_rows, to be timed by fixup_variants.py: one kernel per build, chosen by macros.
//
// Every warp lists the empty requests by itself, 32 * PER_LANE at a time, in registers: no shared memory, no barrier. The rows
// listed are cut into units of a power of two of packs. How units fall to blocks is the host's choice (p.unused and the grid).
#include "common.cuh"

#ifndef THREADS
#define THREADS 256
#endif
#ifndef PER_LANE
#define PER_LANE 4  // requests per lane
#endif
#ifndef TILE
#define TILE 0  // bytes of the zeroed tile in shared memory that bulk stores send; 0: ordinary stores
#endif
#ifndef EVICT_FIRST
#define EVICT_FIRST 0
#endif
#ifndef PDL
#define PDL 0  // launched before the kernel before it has ended (programmatic stream serialization)
#endif

namespace attnfix {

struct FixupParams {
  void* out;
  float* lse;
  Requests<i64> requests;
  i64 tokens;
  Strides3<i64> out_stride;  // in packs
  LseStrides<i64> lse_stride;
  FastDiv per_token, per_head;
  u32 unit;    // log2 of the packs of a unit; << 8: the least that it may shrink to, so that more blocks have work
  u32 unused;  // blocks that run side by side and take units in turns; 0: a block's units lie one after another
};
static_assert(sizeof(FixupParams) == 136, "as the present kernel's");

// The requests of one round; a request's end is the number of rows to fill up to and with it, of all requests of the round.
struct Round {
  int end[PER_LANE], shift[PER_LANE];  // token = shift + row
  int rows;

  __device__ __forceinline__ void scan(const Requests<i64>& requests, u32 round, int tokens) {
    const u32 lane = threadIdx.x & 31, first = round + lane * PER_LANE;
    int offset[PER_LANE + 1], kv[PER_LANE];
#pragma unroll
    for (int j = 0; j <= PER_LANE; ++j) offset[j] = requests.begin(min(first + j, requests.count));
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) kv[j] = requests.kv_len(min(first + j, requests.count - 1));
    int sum = 0;
#pragma unroll
    for (int j = 0; j <= PER_LANE; ++j) offset[j] = min(max(offset[j], 0), tokens);
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) {
      // Past the last request both offsets are the same: no rows.
      const int mine = kv[j] <= 0 ? max(offset[j + 1] - offset[j], 0) : 0;
      shift[j] = offset[j] - sum;
      sum += mine;
      end[j] = sum;
    }
    int before = sum;
#pragma unroll
    for (int d = 1; d < 32; d <<= 1) {
      const int left = __shfl_up_sync(kAllLanes, before, d);
      if (lane >= d) before += left;
    }
    rows = min(max(__shfl_sync(kAllLanes, before, 31), 0), tokens);  // offsets that fall could count rows twice
    before -= sum;
#pragma unroll
    for (int j = 0; j < PER_LANE; ++j) end[j] += before, shift[j] -= before;
  }

  // The request of a row: the same in all lanes, which all call. False if there is none.
  __device__ __forceinline__ bool find(int row, int& its_end, int& its_shift) const {
    int e = end[PER_LANE - 1], s = shift[PER_LANE - 1];
#pragma unroll
    for (int j = PER_LANE - 2; j >= 0; --j)
      if (end[j] > row) e = end[j], s = shift[j];
    const u32 past = __ballot_sync(kAllLanes, end[PER_LANE - 1] > row);
    const int lane = __ffs(past) - 1;
    its_end = __shfl_sync(kAllLanes, e, lane);
    its_shift = __shfl_sync(kAllLanes, s, lane);
    return past != 0;
  }

  // The shift of a row of each lane's own; all lanes call.
  __device__ __forceinline__ int find_own(int row) const {
    int lane = 0;
#pragma unroll
    for (int step = 16; step; step >>= 1)
      if (__shfl_sync(kAllLanes, end[PER_LANE - 1], lane + step - 1) <= row) lane += step;
    int s = __shfl_sync(kAllLanes, shift[PER_LANE - 1], lane);
#pragma unroll
    for (int j = PER_LANE - 2; j >= 0; --j) {
      const int e = __shfl_sync(kAllLanes, end[j], lane), of = __shfl_sync(kAllLanes, shift[j], lane);
      if (e > row) s = of;
    }
    return s;
  }
};

__device__ __forceinline__ void store_zero(Pack* at) {
#if EVICT_FIRST
  __stcs(reinterpret_cast<uint4*>(at), uint4{});
#else
  *at = Pack{};
#endif
}

#if TILE
constexpr u32 kTilePacks = TILE / 16;

__device__ __forceinline__ void bulk_store(Pack* at, u32 tile, u32 bytes) {
#if EVICT_FIRST
  unsigned long long policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(
                   __cvta_generic_to_global(at)),
               "r"(tile), "r"(bytes), "l"(policy)
               : "memory");
#else
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(__cvta_generic_to_global(at)), "r"(tile),
               "r"(bytes)
               : "memory");
#endif
}
#endif

// One warp or block fills packs [i, stop) of the rows listed, which lie in [0, rows * packs per row).
__device__ __forceinline__ void fill(const FixupParams& p, const Round& round, u32 i, u32 stop, u32 tile) {
  const u32 row_packs = p.per_token.divisor, head_packs = p.per_head.divisor;
  const bool dense = p.out_stride.head == head_packs && p.out_stride.token == row_packs;
  const bool tokens_side_by_side = p.lse_stride.token < p.lse_stride.head;
  Pack* const out = static_cast<Pack*>(p.out);
  int row = static_cast<int>(divide(i, p.per_token));
  u32 rest = i - row * row_packs;
#pragma unroll 1
  while (i < stop) {
    int end, shift;
    if (!round.find(row, end, shift)) return;
    const u32 count = min(static_cast<u32>(end - row) * row_packs - rest, stop - i);  // of this request
    if (dense) [[likely]] {
      Pack* at = out + (static_cast<i64>(shift) * row_packs + i);
#if TILE
      if (threadIdx.x < 32) {
#pragma unroll 1
        for (u32 j = threadIdx.x * kTilePacks; j < count; j += 32 * kTilePacks)
          bulk_store(at + j, tile, min(count - j, kTilePacks) * 16);
      }
#else
      at += threadIdx.x;
      int left = static_cast<int>(count) - static_cast<int>(threadIdx.x);
#pragma unroll 1
      for (; left > 7 * THREADS; left -= 8 * THREADS, at += 8 * THREADS) {
#pragma unroll
        for (int j = 0; j < 8; ++j) store_zero(at + j * THREADS);
      }
#pragma unroll 1
      for (; left > 0; left -= THREADS, at += THREADS) store_zero(at);
#endif
    } else {
#pragma unroll 1
      for (u32 j = threadIdx.x; j < count; j += THREADS) {
        const u32 r = divide(rest + j, p.per_token), of_row = rest + j - r * row_packs;
        const u32 head = divide(of_row, p.per_head), k = of_row - head * head_packs;
        store_zero(out + ((shift + row + static_cast<i64>(r)) * p.out_stride.token + head * p.out_stride.head + k));
      }
    }
    if (!tokens_side_by_side) [[likely]] {  // the LSEs of all heads that begin here
      const u32 first = divide(i + head_packs - 1, p.per_head), last = divide(i + count + head_packs - 1, p.per_head);
      if (p.lse_stride.head == 1 && p.lse_stride.token * head_packs == row_packs) [[likely]] {
        float* const lse = p.lse + static_cast<i64>(shift) * p.lse_stride.token;
#pragma unroll 1
        for (u32 j = first + threadIdx.x; j < last; j += THREADS) lse[j] = neg_inf();
      } else {
        const u32 heads = row_packs / head_packs;
#pragma unroll 1
        for (u32 j = first + threadIdx.x; j < last; j += THREADS) {
          const u32 r = j / heads;
          p.lse[(shift + static_cast<i64>(r)) * p.lse_stride.token + (j - r * heads) * p.lse_stride.head] = neg_inf();
        }
      }
    }
    i += count;
    row = end;
    rest = 0;
  }
}

// LSEs whose tokens lie side by side: a warp takes 32 tokens and 8 heads, so that what shares 32 bytes is written at once.
// Blocks that had no values come first.
__device__ __forceinline__ void fill_lse(const FixupParams& p, const Round& round, u32 block) {
  constexpr int kSteps = 8;
  const int heads = p.per_token.divisor / p.per_head.divisor;
  const u32 columns = (round.rows + 31) / 32, tiles = columns * ((heads + kSteps - 1) / kSteps);
#pragma unroll 1
  for (u32 tile = gridDim.x - 1 - block + gridDim.x * (threadIdx.x / 32); tile < tiles; tile += gridDim.x * (THREADS / 32)) {
    const int group = tile / columns, first = group * kSteps, stop = min(first + kSteps, heads);
    const int row = (tile - group * columns) * 32 + (threadIdx.x & 31);
    const int shift = round.find_own(min(row, round.rows - 1));
    if (row >= round.rows) continue;  // only lanes of this warp's last column, which meet again at the loop's head
    float* at = p.lse + static_cast<i64>(shift + row) * p.lse_stride.token + first * p.lse_stride.head;
#pragma unroll 1
    for (int i = first; i < stop; ++i, at += p.lse_stride.head) *at = neg_inf();
  }
  __syncwarp();
}

// Or the compiler takes more registers than leave room for them.
constexpr int kBlocksPerSm = (TILE ? 1536 : 2048) / THREADS < 32 ? (TILE ? 1536 : 2048) / THREADS : 32;

extern "C" __global__ void __launch_bounds__(THREADS, kBlocksPerSm)
    fixup_variant(const __grid_constant__ FixupParams p) {
  u32 tile = 0;
#if TILE
  alignas(128) __shared__ Pack zeros[kTilePacks];
#pragma unroll
  for (u32 i = threadIdx.x; i < kTilePacks; i += THREADS) zeros[i] = Pack{};
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  tile = static_cast<u32>(__cvta_generic_to_shared(zeros));
#endif
#if PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  const u32 grid = gridDim.x;
  u32 block = blockIdx.x;  // less those that had the last round's units, so that the blocks stay even
#pragma unroll 1
  for (u32 first = 0; first < p.requests.count; first += 32 * PER_LANE) {
    Round round;
    round.scan(p.requests, first, static_cast<int>(p.tokens));
#if TILE
    if (!first) __syncthreads();
#endif
    const u32 packs = static_cast<u32>(round.rows) * p.per_token.divisor;
    if (!packs) continue;
    u32 log2 = p.unit & 31;
#pragma unroll 1
    while (log2 > p.unit >> 8 && (packs - 1) >> (log2 - 1) < grid) --log2;
    const u32 units = ((packs - 1) >> log2) + 1;
    // One copy of `fill`: at a cold launch code comes from memory.
    u32 unit = block, step = grid, side_by_side = 1, stop = units;
    if (units > grid) {
      const u32 each = (units - 1) / grid + 1;
      if (p.unused) {
        const u32 wave = block / p.unused * p.unused;
        step = min(p.unused, grid - wave);
        unit = wave * each + (block - wave);
        stop = min(stop, wave * each + step * each);
      } else {
        unit = block * each;
        side_by_side = each, step = units;
      }
    }
#pragma unroll 1
    for (; unit < stop; unit += step)
      fill(p, round, unit << log2, min((unit + side_by_side) << log2, packs), tile);
    if (p.lse_stride.token < p.lse_stride.head) fill_lse(p, round, block);
    if (units < grid) block = block >= units ? block - units : block + (grid - units);
  }
#if TILE
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

}  // namespace attnfix

#ifndef EMULATED
extern "C" int fixup_resident() {  // blocks that run at once
  int per_sm = 0, device = 0, sms = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  // As much shared memory as there is, rather than L1: tiles would else keep blocks out.
  if (TILE) cudaFuncSetAttribute(attnfix::fixup_variant, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, attnfix::fixup_variant, THREADS, 0);
  return per_sm * sms;
}

extern "C" int fixup_launch(const void* params, int grid, void* stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(THREADS);
  config.stream = static_cast<cudaStream_t>(stream);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = PDL;
  return cudaLaunchKernelEx(&config, attnfix::fixup_variant, *static_cast<const attnfix::FixupParams*>(params));
}
#endif
