"""Stand-ins for FlashInfer's wrappers where windows, masks and soft caps matter, as sglang plans and calls them; page size 1.

FlashInfer takes its kernel when a batch is planned: one with the window's mask if the plan's `window_left` is at least 0, one
with a soft cap if the plan's `logits_soft_cap` is above 0. The values at the call are then the mask's width, where -1 switches
it off, and the cap. A kernel without the mask uses the call's window only to leave out whole tiles: here, for nothing. A kernel
without the cap does not read it. A kernel that was planned for one window splits the KV otherwise than one that is
called with another: here the result is NaN. So it is for a call without a cap of a kernel that divides by it.

A plan with a custom mask has that in the place of the causal one. For a CUDA graph, KV indices and mask lie in buffers that the
caller gives: the mask packed, eight keys to a byte, each request beginning at a byte; wrappers may share a buffer, and a call
reads what lies there then. Lengths are those of the plan, KV is what lies in the slots at the call. LSEs have base 2.

Source: `plan`, `forward` and `forward_return_lse` in `prefill.py` and `decode.py`, `DefaultAttention` in `variants.cuh`,
`cascade.cuh` of FlashInfer 0.2.11, 0.6.12 and 0.7.2. How KV is split: `BatchPrefillWithPagedKVCacheDevice` in `prefill.cuh`,
`PrefillSplitQOKVIndptr` in `scheduler.cuh` of 0.6.12 and 0.7.2.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch


def _attend(q, k, v, mask, scale, soft_cap=0.0):
    """q: [tokens, heads, d]; k, v: [kv, kv heads, d]; mask: [tokens, kv]. Output, LSE in float64; without keys 0 and -inf."""
    k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->qhk", q.double(), k) * scale
    if soft_cap:
        scores = (scores / soft_cap).tanh() * soft_cap
    scores = scores.masked_fill(~mask[:, None], -math.inf)
    lse = scores.logsumexp(-1) if len(k) else scores.new_full(scores.shape[:2], -math.inf)
    weights = (scores - lse[..., None]).exp().nan_to_num(0.0)
    return torch.einsum("qhk,khd->qhd", weights, v), lse / math.log(2)


def window_mask(tokens, kv, causal, window, device):
    """Which keys each of the last `tokens` positions of `kv` sees; a window below 0 is none."""
    at, key = torch.arange(kv - tokens, kv, device=device)[:, None], torch.arange(kv, device=device)[None]
    seen = key <= at if causal else torch.ones(tokens, kv, dtype=torch.bool, device=device)
    return seen & (key >= at - window) if window >= 0 else seen


class _Capped:
    """Which kernel was planned, as far as the soft cap goes."""

    def _plan_cap(self, logits_soft_cap):
        self._caps = (logits_soft_cap or 0.0) > 0

    def _cap(self, at_the_call):
        return (at_the_call or math.nan) if self._caps else 0.0


class _Prefill(_Capped):
    def __init__(self, *args, **kwargs):
        self._qo, self._kv = [], []

    def _plan(self, qo_indptr, kv_indptr, window_left, custom_mask, logits_soft_cap):
        self._qo, self._kv = qo_indptr.tolist(), kv_indptr.tolist()
        self._window, self._mask = window_left, custom_mask
        self._plan_cap(logits_soft_cap)

    def _masks(self):
        """A bool tensor [tokens, keys] for each request, or None."""
        if self._mask is None:
            return [None] * (len(self._qo) - 1)
        begin, masks = 0, []
        for rows, kv in self._shapes():
            masks.append(self._mask[begin : begin + rows * kv].view(rows, kv).bool())
            begin += rows * kv
        return masks

    def _shapes(self):
        return [(q1 - q0, k1 - k0) for q0, q1, k0, k1 in zip(self._qo, self._qo[1:], self._kv, self._kv[1:])]

    def _run(self, q, keys, causal, scale, window, soft_cap, out_scale=1.0):
        """keys(b): K and V of a request."""
        if len(q) != self._qo[-1]:
            raise ValueError("q.shape[0] does not match qo_indptr[-1]")
        width = window if self._window >= 0 else -1
        outs, lses = [], []
        for b, ((tokens, kv), custom) in enumerate(zip(self._shapes(), self._masks(), strict=True)):
            rows = q[self._qo[b] : self._qo[b + 1]]
            mask = window_mask(tokens, kv, causal and custom is None, width, q.device)
            k, v = keys(b)
            out, lse = _attend(rows, k, v, mask if custom is None else mask & custom, scale, self._cap(soft_cap))
            outs.append(out * (out_scale if width in (-1, self._window) else math.nan))
            lses.append(lse)
        return torch.cat(outs).to(q.dtype), torch.cat(lses).float()


class RaggedPrefill(_Prefill):
    """`BatchPrefillWithRaggedKVCacheWrapper`."""

    def begin_forward(self, qo_indptr, kv_indptr, *shapes, window_left=-1, custom_mask=None, logits_soft_cap=None, **kwargs):
        self._plan(qo_indptr, kv_indptr, window_left, custom_mask, logits_soft_cap)

    def forward_return_lse(self, q, k, v, *, causal, sm_scale, logits_soft_cap, window_left=-1):
        if len(k) != self._kv[-1]:
            raise ValueError("k.shape[0] does not match kv_indptr[-1]")
        span = lambda x, b: x[self._kv[b] : self._kv[b + 1]]  # noqa: E731
        return self._run(q, lambda b: (span(k, b), span(v, b)), causal, sm_scale, window_left, logits_soft_cap)

    def forward(self, *args, **kwargs):
        return self.forward_return_lse(*args, **kwargs)[0]


class PagedPrefill(_Prefill):
    """`BatchPrefillWithPagedKVCacheWrapper`. Keys are multiplied by `k_scale`, the output by `v_scale`."""

    def __init__(self, *args, use_cuda_graph=False, paged_kv_indices_buf=None, custom_mask_buf=None, mask_indptr_buf=None, **_):
        super().__init__()
        self.is_cuda_graph_enabled, self._paged_kv_indices_buf = use_cuda_graph, paged_kv_indices_buf
        self._custom_mask_buf, self._mask_indptr_buf = custom_mask_buf, mask_indptr_buf

    def begin_forward(self, qo_indptr, kv_indptr, kv_indices, *shapes, window_left=-1, custom_mask=None, logits_soft_cap=None,
                      **kwargs):  # fmt: skip
        self._plan(qo_indptr, kv_indptr, window_left, custom_mask, logits_soft_cap)
        if not self.is_cuda_graph_enabled:
            self._paged_kv_indices_buf = kv_indices
            return
        self._paged_kv_indices_buf[: len(kv_indices)] = kv_indices
        if custom_mask is not None:
            packed = [_packed(mask) for mask in super()._masks()]
            begins = torch.tensor([0, *map(len, packed)]).cumsum(0)
            self._custom_mask_buf[: begins[-1]], self._mask_indptr_buf[:] = torch.cat(packed), begins

    def _masks(self):
        if not self.is_cuda_graph_enabled or self._custom_mask_buf is None:
            return super()._masks()
        begins = self._mask_indptr_buf.tolist()
        return [_unpacked(self._custom_mask_buf[begin:], *shape) for begin, shape in zip(begins, self._shapes())]

    def forward_return_lse(self, q, kv, *, causal, sm_scale, logits_soft_cap, window_left=-1, k_scale=None, v_scale=None):
        slots = self._paged_kv_indices_buf.long()
        at = lambda b: slots[self._kv[b] : self._kv[b + 1]]  # noqa: E731
        keys = lambda b: (kv[0][at(b)], kv[1][at(b)])  # noqa: E731
        return self._run(q, keys, causal, sm_scale * (k_scale or 1.0), window_left, logits_soft_cap, v_scale or 1.0)

    def forward(self, *args, **kwargs):
        return self.forward_return_lse(*args, **kwargs)[0]


def _packed(mask):
    bits = torch.nn.functional.pad(mask.flatten().int(), (0, -mask.numel() % 8)).view(-1, 8)
    return (bits << torch.arange(8)).sum(1).to(torch.uint8)


def _unpacked(bytes_, rows, kv):
    bits = bytes_[: -(-rows * kv // 8), None].int() >> torch.arange(8) & 1
    return bits.flatten()[: rows * kv].view(rows, kv).bool()


class PagedDecode(_Capped):
    """`BatchDecodeWithPagedKVCacheWrapper`: one token of each request, whose KV is all that is planned.

    Keys are multiplied by `k_scale`, the output by `v_scale`.
    """

    use_tensor_cores = False
    _float_workspace_buffer = _int_workspace_buffer = _pin_memory_int_workspace_buffer = None

    def __init__(
        self, *args, use_cuda_graph=False, paged_kv_indptr_buffer=None, paged_kv_indices_buffer=None,
        paged_kv_last_page_len_buffer=None, **kwargs,
    ):  # fmt: skip
        self.is_cuda_graph_enabled, self._paged_kv_indices_buf = use_cuda_graph, paged_kv_indices_buffer
        if use_cuda_graph:  # what sglang's own plan of a replay asks for, up to 0.5.2
            self.device, self._fixed_batch_size = paged_kv_indptr_buffer.device, len(paged_kv_indptr_buffer) - 1
            self._paged_kv_indptr_buf, self._paged_kv_last_page_len_buf = paged_kv_indptr_buffer, paged_kv_last_page_len_buffer
            self._cached_module = SimpleNamespace(plan=self._replan)

    def _replan(self, _float, _int, _pinned, indptr_host, *_):
        self._indptr = indptr_host.tolist()

    def begin_forward(self, indptr, indices, *shapes, logits_soft_cap=None, **kwargs):
        self._plan_cap(logits_soft_cap)
        fast_decode_plan(self, indptr, indices)

    def forward(self, q, kv, *, sm_scale, logits_soft_cap, k_scale=None, v_scale=None):
        outs = []
        for b, (first, end) in enumerate(zip(self._indptr, self._indptr[1:])):
            k, v = (x[self._paged_kv_indices_buf[first:end].long()] for x in kv)
            mask = window_mask(1, len(k), True, -1, q.device)
            outs.append(_attend(q[b : b + 1], k, v, mask, sm_scale * (k_scale or 1.0), self._cap(logits_soft_cap))[0])
        return (torch.cat(outs) * (v_scale or 1.0)).to(q.dtype)


def fast_decode_plan(wrapper, indptr, indices, *shapes, **kwargs):
    """The plan of a replay: the kernel is that of capture, whatever cap this names."""
    wrapper._indptr = indptr.tolist()
    if not wrapper.is_cuda_graph_enabled:
        wrapper._paged_kv_indices_buf = indices
    elif indices.data_ptr() != wrapper._paged_kv_indices_buf.data_ptr():
        wrapper._paged_kv_indices_buf[: len(indices)] = indices


def merge_state(v_a, s_a, v_b, s_b):
    """`flashinfer.cascade.merge_state`: two outputs, weighed by their LSEs of base 2."""
    s = torch.logaddexp2(s_a.double(), s_b.double())
    weights = (torch.exp2(x.double() - s).nan_to_num(0.0)[..., None] for x in (s_a, s_b))
    return sum(x.double() * w for x, w in zip((v_a, v_b), weights)).to(v_a.dtype), s.float()
