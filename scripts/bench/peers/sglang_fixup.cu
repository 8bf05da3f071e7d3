// sglang's fix-up with its own launcher, as a C function for ctypes. -I: ./include, the fetched release.
#include <fixup_zero_kv.cuh>

extern "C" int fixup_zero_kv_rows_bf16(
    void* out, void* lse, void* kv_lens, void* cum_seq_lens, int64_t tokens, int64_t heads, int64_t head_size,
    int64_t requests, int64_t max_seq_len, cudaStream_t stream) {
  fixup_zero_kv_rows<__nv_bfloat16>(
      {out, {tokens, heads, head_size}, stream}, {lse, {tokens, heads}, stream}, {kv_lens, {requests}, stream},
      {cum_seq_lens, {requests + 1}, stream}, max_seq_len);
  return cudaGetLastError();
}
