"""Stand-ins for GPU kernels that cannot run here, each at the kernel's public entry point and with its documented fault.

One object serves the stock and the fixed side of a proof. This module imports torch and nothing of attnfix, reads no
environment, and draws what a kernel leaves undefined at random in every run.
"""

from __future__ import annotations

import math

import torch

_noise = torch.Generator()
_noise.seed()


def attention(q, k, v, scale, causal=False, soft_cap=0.0, sinks=None):
    """Dense attention in float64 of one request. q: [tokens, heads, d]; k, v: [kv, heads, …]. Returns out and natural LSE.

    out: [tokens, heads, dv]; lse: [tokens, heads]. With no keys out is 0 and lse -inf. `causal` aligns the last positions.
    `soft_cap`: what tanh keeps the scores below; 0 is none. `sinks`: [heads], the score of one more key of each head, whose
    value is 0; it is no key in the sense of "no keys".
    """
    q, k, v = q.double(), k.double(), v.double()
    tokens, kv = q.shape[0], k.shape[0]
    if kv == 0:
        return q.new_zeros(tokens, q.shape[1], v.shape[2]), q.new_full((tokens, q.shape[1]), -math.inf)
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    if soft_cap:
        scores = (scores / soft_cap).tanh() * soft_cap
    if causal:
        seen = torch.ones(tokens, kv, dtype=torch.bool, device=q.device).tril(kv - tokens)
        scores = scores.masked_fill(~seen[:, None, :], -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double()[:, None].expand(tokens, -1, 1)], -1)
    return torch.einsum("qhk,khd->qhd", scores.softmax(-1)[..., :kv], v), scores.logsumexp(-1)


def stale(shape, dtype, low, high, device="cpu"):
    """What a kernel leaves in memory it does not write: finite, plausible, different in every run."""
    values = torch.rand(shape, generator=_noise) * (high - low) + low
    return values.to(device=device, dtype=dtype)


class TrtllmRaggedAttention:
    """FlashInfer's `trtllm_ragged_attention_deepseek`: the kernel, and the launcher that computes the LSE.

    The kernel writes nothing for rows of requests without KV: neither `out` nor the softmax statistics, maximum and sum, which
    lie in the workspace. The launcher computes every LSE from the statistics; (0, 0) gives -inf. So what such a row holds is
    what the caller's memory held: 0 and -inf where `out` and workspace were zero-filled just before, else what an earlier
    launch left. With `undefined` it is noise whatever the caller did: for finding out who reads those rows.

    Source: `trtllm_ragged_attention_launcher` and `ComputeLSEFromMD` of FlashInfer 0.5.2 and 0.6.6; its issues 3047, 2408 and
    2409; sglang issue 22291. `lse_base` is the base of the returned LSE.
    """

    def __init__(self, lse_base=math.e, undefined=False):
        self.lse_base = lse_base
        self.undefined = undefined
        self.calls = 0

    def __call__(
        self,
        query,
        key,
        value,
        *,
        workspace_buffer,
        seq_lens,
        cum_seq_lens_q,
        cum_seq_lens_kv,
        bmm1_scale,
        bmm2_scale,
        batch_size,
        is_causal,
        return_lse,
        out=None,
        **launch,
    ):
        self.calls += 1
        tokens, heads = query.shape[:2]
        if out is None:
            out = stale((tokens, heads, value.shape[2]), query.dtype, 1, 20, query.device)
        statistics = workspace_buffer.view(torch.float32)[: 2 * tokens * heads].view(tokens, heads, 2)
        q_at, kv_at = cum_seq_lens_q.tolist(), cum_seq_lens_kv.tolist()
        for b in range(batch_size):
            rows, kv = slice(q_at[b], q_at[b + 1]), slice(kv_at[b], kv_at[b + 1])
            if int(seq_lens[b]) != kv_at[b + 1] - kv_at[b]:
                raise ValueError(f"request {b}: seq_lens and cum_seq_lens_kv disagree")
            if kv.start < kv.stop:
                result, natural = attention(query[rows], key[kv], value[kv], float(bmm1_scale), is_causal)
                out[rows] = (result * float(bmm2_scale)).to(out.dtype)
                statistics[rows, :, 0], statistics[rows, :, 1] = natural.float(), 1
            elif self.undefined:
                out[rows] = stale(out[rows].shape, out.dtype, 1, 20, query.device)
                statistics[rows] = stale(statistics[rows].shape, torch.float32, 2, 12, query.device)
        lse = (statistics[..., 0] + statistics[..., 1].log()) / math.log(self.lse_base)
        return (out, lse) if return_lse else out


def flash_attn_varlen_func(
    q,
    k,
    v,
    *,
    cu_seqlens_q,
    cu_seqlens_k,
    max_seqlen_q,
    max_seqlen_k,
    softmax_scale,
    causal,
    return_softmax_lse=False,
    fa_version=3,
    out=None,
    output_scale=None,
    empty_lse=-math.inf,
    **launch,
):
    """vLLM's FlashAttention. The LSE is [heads, tokens] float32.

    Rows of requests without keys get out 0 and `empty_lse`: -inf in FlashAttention 3, +inf in 2; so say the engine's merge
    kernels, too.
    """
    if out is not None or output_scale is not None:
        raise NotImplementedError("an output of the caller's")
    q_at, k_at = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    result, lse = q.new_zeros(*q.shape[:2], v.shape[2]), q.new_full(q.shape[:2], -math.inf, dtype=torch.float32)
    for b in range(len(q_at) - 1):
        rows, keys = slice(q_at[b], q_at[b + 1]), slice(k_at[b], k_at[b + 1])
        part, part_lse = attention(q[rows], k[keys], v[keys], softmax_scale, causal)
        result[rows], lse[rows] = part.to(q.dtype), part_lse.float()
    lse.masked_fill_(lse == -math.inf, empty_lse)
    return (result, lse.t().contiguous()) if return_softmax_lse else result


class PagedDecode:
    """FlashInfer's `trtllm_batch_decode_with_kv_cache`: `q_len_per_req` rows of every request, the last ones of its KV.

    The number of requests is that of the query's rows divided by `q_len_per_req`, and nobody asks whether `seq_lens` and
    `block_tables` hold as many. Reading past them is the illegal memory access of sglang issue 24863: it ends the CUDA
    context, so nothing of such a launch can be used; here its result is NaN throughout.
    """

    def __init__(self):
        self.calls = 0

    def __call__(
        self, *, query, kv_cache, block_tables, seq_lens, bmm1_scale, bmm2_scale, window_left, sinks, q_len_per_req=1,
        out_dtype=None, **launch
    ):  # fmt: skip
        self.calls += 1
        _sinkless(sinks)
        batch_size = query.shape[0] // q_len_per_req
        if batch_size > len(seq_lens) or batch_size > len(block_tables):
            return torch.full(query.shape, math.nan, dtype=query.dtype)
        q_at = [q_len_per_req * b for b in range(batch_size + 1)]
        return _paged(query, kv_cache, block_tables, seq_lens, q_at, bmm1_scale, bmm2_scale, out_dtype, window_left)


class PagedContext:
    """FlashInfer's `trtllm_batch_context_with_kv_cache`: rows of each request by `cum_seq_lens_q`; the rest is undefined."""

    def __init__(self):
        self.calls = 0

    def __call__(
        self,
        *,
        query,
        kv_cache,
        block_tables,
        seq_lens,
        max_q_len,
        bmm1_scale,
        bmm2_scale,
        batch_size,
        cum_seq_lens_q,
        cum_seq_lens_kv,
        window_left,
        sinks,
        out_dtype=None,
        **launch,
    ):
        self.calls += 1
        _sinkless(sinks)
        q_at, q_lens, kv_lens = cum_seq_lens_q.tolist(), cum_seq_lens_q.diff().tolist(), cum_seq_lens_kv.diff().tolist()
        if not batch_size == len(q_lens) == len(kv_lens) == len(seq_lens) <= len(block_tables):
            raise ValueError("the arguments speak of different numbers of requests")
        if q_at[-1] > query.shape[0] or max(q_lens) > max_q_len:
            raise ValueError("cum_seq_lens_q goes beyond the query or max_q_len")
        if seq_lens.tolist() != kv_lens:
            raise ValueError("seq_lens and cum_seq_lens_kv disagree")
        return _paged(query, kv_cache, block_tables, seq_lens, q_at, bmm1_scale, bmm2_scale, out_dtype, window_left)


def _dense(window_left):
    if window_left not in (None, -1):
        raise NotImplementedError("sliding windows are not emulated")


def _sinkless(sinks):
    if sinks is not None:
        raise NotImplementedError("sinks are not emulated")


def _paged(query, kv_cache, block_tables, seq_lens, q_at, bmm1_scale, bmm2_scale, out_dtype, window_left):
    """Causal attention over [pages, KV heads, page size, d] caches; rows that belong to no request stay undefined.

    window_left: tokens that a token sees before itself, all where it is None or -1.
    """
    out = stale(query.shape, out_dtype or query.dtype, 1, 20)
    for b, kv_len in enumerate(seq_lens.tolist()[: len(q_at) - 1]):
        rows = slice(q_at[b], q_at[b + 1])
        pages = block_tables[b, : -(-kv_len // kv_cache[0].shape[2])].long()
        k, v = (cache[pages].transpose(1, 2).flatten(0, 1)[:kv_len].double() for cache in kv_cache)
        group = query.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        if window_left in (None, -1):
            result, _ = attention(query[rows], k, v, float(bmm1_scale), causal=True)
        else:
            ends = range(kv_len - len(query[rows]) + 1, kv_len + 1)
            spans = [slice(max(0, end - 1 - window_left), end) for end in ends]
            result = torch.cat([
                attention(one[None], k[span], v[span], float(bmm1_scale))[0] for one, span in zip(query[rows], spans)
            ])  # fmt: skip
        out[rows] = (result * float(bmm2_scale)).to(out.dtype)
    return out


class RaggedWrapper:
    """FlashInfer's `BatchPrefillWithRaggedKVCacheWrapper`: rows without KV get out 0 and LSE -inf, as that kernel does.

    `lse_base` is the base of the returned LSE: the kernels' own is 2 (`prefill.cuh` of FlashInfer 0.6.11: m + log2(d)).
    """

    _backend = "emulated"

    def __init__(self, lse_base=math.e):
        self.lse_base = lse_base

    def plan(self, qo_indptr, kv_indptr, *, causal=False, sm_scale=None, window_left=-1, logits_soft_cap=None, **shapes):
        _dense(window_left)
        self._qo_indptr_buf, self._kv_indptr_buf = qo_indptr.clone(), kv_indptr.clone()
        self._causal, self._sm_scale, self._window_left, self._logits_soft_cap = causal, sm_scale, -1, logits_soft_cap or 0.0

    begin_forward = plan

    def forward(self, *args, **kwargs):
        return self.forward_return_lse(*args, **kwargs)[0]

    def forward_return_lse(self, q, k, v, causal, sm_scale, logits_soft_cap=0.0):
        self._causal, self._sm_scale = causal, sm_scale
        return self.run(q, k, v, return_lse=True)

    def run(self, q, k, v, *, out=None, return_lse=False):
        """out: [tokens, heads, dv]; lse: [tokens, heads] float32, contiguous."""
        spans = self._qo_indptr_buf.tolist(), self._kv_indptr_buf.tolist()
        return _planned(q, k, v, *spans, self._sm_scale, self._causal, self.lse_base, out, return_lse)


class PagedWrapper:
    """FlashInfer's `BatchPrefillWithPagedKVCacheWrapper`, for attention that is not causal; else as RaggedWrapper."""

    _backend = "emulated"

    def __init__(self, lse_base=math.e, kv_layout="NHD"):
        self.lse_base, self._kv_layout = lse_base, kv_layout

    def plan(
        self,
        qo_indptr,
        paged_kv_indptr,
        paged_kv_indices,
        paged_kv_last_page_len,
        num_qo_heads,
        num_kv_heads,
        head_dim_qk,
        page_size,
        *,
        causal,
        sm_scale,
        window_left=-1,
        logits_soft_cap=None,
        **shapes,
    ):
        _dense(window_left)
        if causal:
            raise NotImplementedError("a causal mask over pages")
        self._qo_indptr_buf, self._paged_kv_indptr_buf = qo_indptr.clone(), paged_kv_indptr.clone()
        self._paged_kv_indices_buf, self._paged_kv_last_page_len_buf = paged_kv_indices.clone(), paged_kv_last_page_len.clone()
        self._causal, self._sm_scale, self._window_left, self._logits_soft_cap = causal, sm_scale, -1, logits_soft_cap or 0.0

    def run(self, q, paged_kv_cache, *, k_scale=None, v_scale=None, out=None, return_lse=False):
        """paged_kv_cache: (k, v), each [pages, page size, KV heads, d] (NHD), [pages, KV heads, …] (HND); or [pages, 2, …]."""
        both = paged_kv_cache if isinstance(paged_kv_cache, tuple) else paged_kv_cache.unbind(1)
        both = [x.transpose(1, 2) if self._kv_layout == "HND" else x for x in both]
        at, last = self._paged_kv_indptr_buf.tolist(), self._paged_kv_last_page_len_buf.tolist()
        indices, kv_at, parts = self._paged_kv_indices_buf.long(), [0], []
        for b in range(len(at) - 1):
            tokens = max(at[b + 1] - at[b] - 1, 0) * both[0].shape[1] + (last[b] if at[b] < at[b + 1] else 0)
            parts.append([x[indices[at[b] : at[b + 1]]].flatten(0, 1)[:tokens] for x in both])
            kv_at.append(kv_at[-1] + tokens)
        k, v = (torch.cat(part) for part in zip(*parts))
        q_at, scale = self._qo_indptr_buf.tolist(), self._sm_scale * (k_scale or 1.0)
        return _planned(q, k, v * (v_scale or 1.0), q_at, kv_at, scale, False, self.lse_base, out, return_lse)


def _planned(q, k, v, q_at, kv_at, scale, causal, lse_base, out, return_lse):
    outs, lses = [], []
    for b in range(len(q_at) - 1):
        keys = slice(kv_at[b], kv_at[b + 1])
        group = q.shape[1] // k.shape[1]
        wide_k, wide_v = (x[keys].repeat_interleave(group, 1) for x in (k, v))
        result, lse = attention(q[q_at[b] : q_at[b + 1]], wide_k, wide_v, scale, causal)
        outs.append(result)
        lses.append(lse)
    result = torch.cat(outs).to(q.dtype)
    if out is not None:
        result = out.copy_(result)
    return (result, (torch.cat(lses) / math.log(lse_base)).float()) if return_lse else result


def merge_state_v2(v_a, s_a, v_b, s_b, v_merged=None, s_merged=None):
    """sgl_kernel's `merge_state_v2`: out [tokens, heads, d], natural LSE [tokens, heads]; +inf counts as -inf. A row that is
    empty on both sides is NaN: the kernel divides by the sum of its weights, and knows no such row."""
    out, lse = _merge(v_a, s_a, v_b, s_b)
    empty = s_a.isinf() & s_b.isinf()
    v_merged, s_merged = (torch.empty_like(x) if given is None else given for x, given in ((v_a, v_merged), (s_a, s_merged)))
    v_merged.copy_(out.masked_fill(empty[..., None], math.nan))
    s_merged.copy_(lse.masked_fill(empty, math.nan))
    return v_merged, s_merged


def merge_attn_states(
    output,
    prefix_output,
    prefix_lse,
    suffix_output,
    suffix_lse,
    output_lse=None,
    prefill_tokens_with_context=None,
    output_scale=None,
    packed=False,
    one_stride=False,
):
    """vLLM's CUDA op of that name (0.11.1 and later): LSE [heads, tokens]; both sides empty gives the prefix row.

    `packed`: up to 0.26.0 the kernel looks at neither shape nor strides of an LSE and reads its memory as [heads, tokens].
    `one_stride`: from 0.12.0 it knows the prefix's head stride alone and reads both sides by it, as [tokens, heads, head size].
    """
    tokens, heads = output.shape[:2]
    if one_stride:
        stride = prefix_output.stride(1)
        read = lambda side: side.as_strided(side.shape, (heads * stride, stride, 1))  # noqa: E731
        prefix_output, suffix_output = read(prefix_output), read(suffix_output)
    if packed:
        read = lambda lse: lse if lse is None else lse.as_strided((heads, tokens), (tokens, 1))  # noqa: E731
        prefix_lse, suffix_lse, output_lse = read(prefix_lse), read(suffix_lse), read(output_lse)
    out, lse = _merge(prefix_output, prefix_lse.t(), suffix_output, suffix_lse.t())
    if prefill_tokens_with_context is not None:
        out[prefill_tokens_with_context:] = suffix_output[prefill_tokens_with_context:].double()
        lse[prefill_tokens_with_context:] = suffix_lse.t()[prefill_tokens_with_context:].double()
    output.copy_(out)
    if output_lse is not None:
        output_lse.copy_(lse.t())


class MergeAttnStates:
    """The same at the compiled op itself, `torch.ops._C.merge_attn_states`: not `guarded`, two empty sides give NaN. How it
    `reads` its arguments are the options of `merge_attn_states`.

    Source: csrc/attention/merge_attn_states.cu of 0.10.0 and 0.11.0, without the guard, and of 0.11.1.
    """

    def __init__(self, guarded=True, **reads):
        self.guarded, self.reads = guarded, reads

    def __call__(self, output, output_lse, prefix_output, prefix_lse, suffix_output, suffix_lse, *later):
        merge_attn_states(output, prefix_output, prefix_lse, suffix_output, suffix_lse, output_lse, *later, **self.reads)
        if not self.guarded:
            empty = prefix_lse.isinf() & suffix_lse.isinf()
            output.masked_fill_(empty.t()[..., None], math.nan)
            if output_lse is not None:
                output_lse.masked_fill_(empty, math.nan)


#: Where AWQ packs eight values: value j of a word lies at bit 4 * AWQ_ORDER[j]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


class UnsupportedInput(RuntimeError):
    """What a linear kernel says to an input of a dtype that it does not take."""


def awq_gemm(input, qweight, scales, qzeros, split_k_iters):
    """vLLM's op of that name. input: [tokens, in]; qweight: int32 [in, out / 8]; scales: [groups, out]; qzeros: int32.

    Source: csrc/quantization/awq/gemm_kernels.cu; the layout agrees with the engine's Triton twin.
    """
    if input.dtype != scales.dtype:
        raise UnsupportedInput(f"awq_gemm: expected an input of {scales.dtype}, got {input.dtype}")
    shifts = 4 * torch.tensor(AWQ_ORDER, dtype=torch.int32, device=input.device)
    values, zeros = ((packed[..., None] >> shifts & 15).flatten(-2).double() for packed in (qweight, qzeros))
    group = len(qweight) // len(scales)
    weight = (values - zeros.repeat_interleave(group, 0)) * scales.double().repeat_interleave(group, 0)
    return (input.double() @ weight).to(input.dtype)


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


def build_tree_kernel_efficient(
    parents,
    top_scores_index,
    seq_lens,
    tree_mask,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    topk,
    spec_steps,
    num_verify_tokens,
    tree_mask_mode,
):
    """sgl_kernel's op of that name for a chain (topk 1) and the full mask: per draft token seq_len + num_verify_tokens flags.

    The caller has set the mask; the op clears what a draft token must not see. It trusts the mask to be large enough.
    """
    if topk != 1 or int(tree_mask_mode) != 0:
        raise NotImplementedError("a tree of several branches, or a packed mask")
    n, at = num_verify_tokens, 0
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    for b, seq_len in enumerate(seq_lens.tolist()):
        rows = tree_mask[at : at + n * (seq_len + n)].view(n, seq_len + n)
        rows[:, seq_len:].masked_fill_(later, False)
        at += rows.numel()
        token = torch.arange(n)
        positions[b * n : (b + 1) * n] = seq_len + token
        retrieve_index[b] = b * n + token
        retrieve_next_token[b, : n - 1] = token[1:]


def trtllm_batch_decode_with_kv_cache_mla(*, query, kv_cache, kv_lora_rank, block_tables, seq_lens, bmm1_scale, **launch):
    """FlashInfer's kernel of that name. query: [requests, tokens, heads, d]; kv_cache: [pages, 1, page size, d].

    The last token of a request sees all its `seq_lens` keys, each one before it one less; rows without any are undefined.
    """
    requests, tokens, heads, d = query.shape
    out = stale((requests, tokens, heads, kv_lora_rank), query.dtype, 1, 20, query.device)
    cache, page = kv_cache.reshape(-1, d), kv_cache.shape[-2]
    for b, kv in enumerate(seq_lens.tolist()):
        if kv > 0:  # padding rows may be told less than nothing
            position, rows = torch.arange(kv, device=query.device), slice(max(0, tokens - kv), tokens)
            keys = cache[block_tables[b, position // page].long() * page + position % page][:, None].expand(-1, heads, -1)
            out[b, rows] = attention(query[b, rows], keys, keys[..., :kv_lora_rank], float(bmm1_scale), True)[0].to(out.dtype)
    return out
