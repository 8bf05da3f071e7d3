"""Stand-ins for FlashInfer's wrappers where windows and masks matter, planned and called as sglang does; page size 1.

FlashInfer takes its kernel when a batch is planned: one with the window's mask if the plan's `window_left` is at least 0. The
window at the call is then the mask's width, and -1 switches it off. A kernel without that mask uses the call's window for
nothing but leaving out whole tiles: here, for nothing. A plan with a custom mask has that in the place of the causal one.
Lengths and slots are those of the plan, KV is what lies in the slots at the call. LSEs have base 2.

Source: `plan`, `forward` and `forward_return_lse` in `prefill.py` and `decode.py`, `DefaultAttention` in `variants.cuh`,
`cascade.cuh` of FlashInfer 0.2.11 and 0.6.12.
"""

from __future__ import annotations

import math

import torch


def _attend(q, k, v, mask, scale):
    """q: [tokens, heads, d]; k, v: [kv, kv heads, d]; mask: [tokens, kv]. Output, LSE in float64; without keys 0 and -inf."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (torch.einsum("qhd,khd->qhk", q.double(), k) * scale).masked_fill(~mask[:, None], -math.inf)
    lse = scores.logsumexp(-1) if len(k) else scores.new_full(scores.shape[:2], -math.inf)
    weights = (scores - lse[..., None]).exp().nan_to_num(0.0)
    return torch.einsum("qhk,khd->qhd", weights, v), lse / math.log(2)


def window_mask(tokens, kv, causal, window, device):
    """Which keys each of the last `tokens` positions of `kv` sees; a window below 0 is none."""
    at, key = torch.arange(kv - tokens, kv, device=device)[:, None], torch.arange(kv, device=device)[None]
    seen = key <= at if causal else torch.ones(tokens, kv, dtype=torch.bool, device=device)
    return seen & (key >= at - window) if window >= 0 else seen


class _Prefill:
    def __init__(self, *args, **kwargs):
        self._qo, self._kv = [], []

    def _plan(self, qo_indptr, kv_indptr, window_left, custom_mask):
        self._qo, self._kv = qo_indptr.tolist(), kv_indptr.tolist()
        self._masks_window, self._mask = window_left >= 0, custom_mask

    def _run(self, q, keys, causal, scale, window):
        """keys(b): K and V of a request."""
        if len(q) != self._qo[-1]:
            raise ValueError("q.shape[0] does not match qo_indptr[-1]")
        outs, lses, begin = [], [], 0
        for b in range(len(self._qo) - 1):
            rows, kv = q[self._qo[b] : self._qo[b + 1]], self._kv[b + 1] - self._kv[b]
            width = window if self._masks_window else -1
            mask = window_mask(len(rows), kv, causal and self._mask is None, width, q.device)
            if self._mask is not None:
                mask &= self._mask[begin : begin + len(rows) * kv].view(len(rows), kv).bool()
                begin += len(rows) * kv
            k, v = keys(b)
            out, lse = _attend(rows, k, v, mask, scale)
            outs.append(out)
            lses.append(lse)
        return torch.cat(outs).to(q.dtype), torch.cat(lses).float()


class RaggedPrefill(_Prefill):
    """`BatchPrefillWithRaggedKVCacheWrapper`."""

    def begin_forward(self, qo_indptr, kv_indptr, *shapes, window_left=-1, custom_mask=None, **kwargs):
        self._plan(qo_indptr, kv_indptr, window_left, custom_mask)

    def forward_return_lse(self, q, k, v, *, causal, sm_scale, logits_soft_cap, window_left=-1):
        if len(k) != self._kv[-1]:
            raise ValueError("k.shape[0] does not match kv_indptr[-1]")
        span = lambda x, b: x[self._kv[b] : self._kv[b + 1]]  # noqa: E731
        return self._run(q, lambda b: (span(k, b), span(v, b)), causal, sm_scale, window_left)

    def forward(self, *args, **kwargs):
        return self.forward_return_lse(*args, **kwargs)[0]


class PagedPrefill(_Prefill):
    """`BatchPrefillWithPagedKVCacheWrapper`."""

    is_cuda_graph_enabled = False

    def begin_forward(self, qo_indptr, kv_indptr, kv_indices, *shapes, window_left=-1, custom_mask=None, **kwargs):
        self._plan(qo_indptr, kv_indptr, window_left, custom_mask)
        self._slots = kv_indices.long()

    def forward_return_lse(self, q, kv, *, causal, sm_scale, logits_soft_cap, window_left=-1, k_scale=None, v_scale=None):
        at = lambda b: self._slots[self._kv[b] : self._kv[b + 1]]  # noqa: E731
        return self._run(q, lambda b: (kv[0][at(b)], kv[1][at(b)]), causal, sm_scale, window_left)

    def forward(self, *args, **kwargs):
        return self.forward_return_lse(*args, **kwargs)[0]


class PagedDecode:
    """`BatchDecodeWithPagedKVCacheWrapper`: one token of each request, whose KV is all that is planned."""

    use_tensor_cores = is_cuda_graph_enabled = False

    def __init__(self, *args, **kwargs):
        self._indptr, self._slots = [], torch.empty(0)

    def begin_forward(self, indptr, indices, *shapes, **kwargs):
        self._indptr, self._slots = indptr.tolist(), indices.long()

    def forward(self, q, kv, *, sm_scale, logits_soft_cap, k_scale=None, v_scale=None):
        outs = []
        for b, (first, end) in enumerate(zip(self._indptr, self._indptr[1:])):
            k, v = (x[self._slots[first:end]] for x in kv)
            mask = window_mask(1, len(k), True, -1, q.device)
            outs.append(_attend(q[b : b + 1], k, v, mask, sm_scale)[0])
        return torch.cat(outs).to(q.dtype)


def merge_state(v_a, s_a, v_b, s_b):
    """`flashinfer.cascade.merge_state`: two outputs, weighed by their LSEs of base 2."""
    s = torch.logaddexp2(s_a.double(), s_b.double())
    weights = (torch.exp2(x.double() - s).nan_to_num(0.0)[..., None] for x in (s_a, s_b))
    return sum(x.double() * w for x, w in zip((v_a, v_b), weights)).to(v_a.dtype), s.float()
