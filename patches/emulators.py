"""Stand-ins for GPU kernels that cannot run here, each at the kernel's public entry point and with its documented fault.

One object serves the stock and the fixed side of a proof. This module imports torch and nothing of attnfix, reads no
environment, and draws what a kernel leaves undefined at random in every run.
"""

from __future__ import annotations

import math

import torch

_noise = torch.Generator()
_noise.seed()


def attention(q, k, v, scale, causal=False):
    """Dense attention in float64 of one request. q: [tokens, heads, d]; k, v: [kv, heads, …]. Returns out and natural LSE.

    out: [tokens, heads, dv]; lse: [tokens, heads]. With no keys out is 0 and lse -inf. `causal` aligns the last positions.
    """
    q, k, v = q.double(), k.double(), v.double()
    tokens, kv = q.shape[0], k.shape[0]
    if kv == 0:
        return q.new_zeros(tokens, q.shape[1], v.shape[2]), q.new_full((tokens, q.shape[1]), -math.inf)
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    if causal:
        seen = torch.ones(tokens, kv, dtype=torch.bool, device=q.device).tril(kv - tokens)
        scores = scores.masked_fill(~seen[:, None, :], -math.inf)
    return torch.einsum("qhk,khd->qhd", scores.softmax(-1), v), scores.logsumexp(-1)


def stale(shape, dtype, low, high, device="cpu"):
    """What a kernel leaves in memory it does not write: finite, plausible, different in every run."""
    values = torch.rand(shape, generator=_noise) * (high - low) + low
    return values.to(device=device, dtype=dtype)


class TrtllmRaggedAttention:
    """FlashInfer's `trtllm_ragged_attention_deepseek`. Rows of requests without KV are left undefined, in out and LSE.

    Source of the fault: FlashInfer issue 3047, sglang issue 22291. `lse_base` is the base of the returned LSE.
    """

    def __init__(self, lse_base=math.e):
        self.lse_base = lse_base
        self.calls = 0

    def __call__(self, query, key, value, *, seq_lens, cum_seq_lens_q, cum_seq_lens_kv, bmm1_scale, bmm2_scale, batch_size,
                 is_causal, return_lse, out=None, lse=None, **launch):
        self.calls += 1
        tokens, heads = query.shape[:2]
        undefined = stale((tokens, heads, value.shape[2]), torch.float32, 1, 20, query.device)
        if out is None:
            out = torch.empty((tokens, heads, value.shape[2]), dtype=query.dtype, device=query.device)
        if lse is None:
            lse = torch.empty((tokens, heads), dtype=torch.float32, device=query.device)
        lse.copy_(stale((tokens, heads), torch.float32, 2, 12, query.device))
        q_at, kv_at = cum_seq_lens_q.tolist(), cum_seq_lens_kv.tolist()
        for b in range(batch_size):
            rows, kv = slice(q_at[b], q_at[b + 1]), slice(kv_at[b], kv_at[b + 1])
            if int(seq_lens[b]) != kv_at[b + 1] - kv_at[b]:
                raise ValueError(f"request {b}: seq_lens and cum_seq_lens_kv disagree")
            if kv.start == kv.stop:
                out[rows] = undefined[rows].to(out.dtype)
                continue
            result, natural = attention(query[rows], key[kv], value[kv], float(bmm1_scale), is_causal)
            out[rows] = (result * float(bmm2_scale)).to(out.dtype)
            lse[rows] = (natural / math.log(self.lse_base)).float()
        return (out, lse) if return_lse else out


class RaggedWrapper:
    """FlashInfer's `BatchPrefillWithRaggedKVCacheWrapper`: rows without KV get out 0 and LSE -inf, as that kernel does."""

    def __init__(self, *args, **kwargs):
        self.plan: tuple = ()  # until `begin_forward`

    def begin_forward(self, qo_indptr, kv_indptr, **kwargs):
        self.plan = qo_indptr.tolist(), kv_indptr.tolist()

    def forward_return_lse(self, q, k, v, causal, sm_scale, logits_soft_cap=0.0):
        outs, lses = [], []
        q_at, kv_at = self.plan
        for b in range(len(q_at) - 1):
            kv = slice(kv_at[b], kv_at[b + 1])
            out, lse = attention(q[q_at[b] : q_at[b + 1]], k[kv], v[kv], sm_scale, causal)
            outs.append(out)
            lses.append(lse)
        return torch.cat(outs).to(q.dtype), torch.cat(lses).float()


def merge_state_v2(v_a, s_a, v_b, s_b, v_merged, s_merged):
    """sgl_kernel's `merge_state_v2`: out [tokens, heads, d], natural LSE [tokens, heads]; +inf counts as -inf."""
    out, lse = _merge(v_a, s_a, v_b, s_b)
    v_merged.copy_(out)
    s_merged.copy_(lse)
    return v_merged, s_merged


def merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse=None,
                      prefill_tokens_with_context=None, output_scale=None):
    """vLLM's CUDA op of that name (0.11.1 and later): LSE [heads, tokens]; both sides empty gives the prefix row."""
    out, lse = _merge(prefix_output, prefix_lse.t(), suffix_output, suffix_lse.t())
    if prefill_tokens_with_context is not None:
        out[prefill_tokens_with_context:] = suffix_output[prefill_tokens_with_context:].double()
        lse[prefill_tokens_with_context:] = suffix_lse.t()[prefill_tokens_with_context:].double()
    output.copy_(out)
    if output_lse is not None:
        output_lse.copy_(lse.t())


def gather_cache(src_cache, dst, block_table, cu_seq_lens, *, seq_starts, **launch):
    """vLLM's `cp_gather_cache` and `gather_and_maybe_dequant_cache` of unquantised [blocks, block size, d] pages."""
    at, page = cu_seq_lens.tolist(), src_cache.shape[1]
    for b, start in enumerate(seq_starts.tolist()):
        position = torch.arange(start, start + at[b + 1] - at[b], device=src_cache.device)
        dst[at[b] : at[b + 1]] = src_cache[block_table[b, position // page].long(), position % page]


def _merge(a, lse_a, b, lse_b):
    lse_a, lse_b = (torch.where(lse.isinf(), -math.inf, lse.double()) for lse in (lse_a, lse_b))
    top = torch.maximum(lse_a, lse_b)
    empty = top.isinf()
    shift = torch.where(empty, 0.0, top)
    weight_a, weight_b = (lse_a - shift).exp(), (lse_b - shift).exp()
    total = torch.where(empty, 1.0, weight_a + weight_b)
    out = (a.double() * weight_a[..., None] + b.double() * weight_b[..., None]) / total[..., None]
    return torch.where(empty[..., None], a.double(), out), torch.where(empty, top, total.log() + shift)


def fixup_zero_kv_rows(out, lse, kv_lens, cum_seq_lens, max_seq_len):
    """sglang's own JIT kernel of that name (0.5.11 and later)."""
    at = cum_seq_lens.tolist()
    for b, kv in enumerate(kv_lens.tolist()):
        if kv == 0:
            out[at[b] : at[b + 1]] = 0
            lse[at[b] : at[b + 1]] = -math.inf
