"""The ops in plain torch: they serve CPU tensors, and CUDA tensors where no kernel can be loaded.

Fully vectorised and free of host syncs, so that the fallback is also legal inside CUDA-graph capture and on engines
that forbid syncs. They take arguments that `ops` has checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

_FP8_MAX = 448.0
_NEG_INF = float("-inf")


@torch.no_grad()
def fixup_zero_kv_rows(
    out: torch.Tensor, lse: torch.Tensor, lens: torch.Tensor, cum_seq_lens: torch.Tensor, cumulative: bool
) -> None:
    """`ops.fixup_zero_kv_rows`; `lens` holds KV offsets when `cumulative`, else KV lengths."""
    kv_lens = lens[1:] - lens[:-1] if cumulative else lens
    rows = rows_without_kv(out.shape[0], kv_lens, cum_seq_lens)
    out.masked_fill_(rows[:, None, None], 0)
    lse.masked_fill_(rows[:, None], _NEG_INF)


@torch.no_grad()
def merge_attn_states(
    output: torch.Tensor,
    prefix_output: torch.Tensor,
    prefix_lse: torch.Tensor,
    suffix_output: torch.Tensor,
    suffix_lse: torch.Tensor,
    output_lse: torch.Tensor | None,
    context_tokens: int,
    output_scale: torch.Tensor | None,
    kv_lens: torch.Tensor | None,
    cum_seq_lens: torch.Tensor | None,
    base2: bool,
) -> None:
    """`ops.merge_attn_states`; tokens at or past `context_tokens` copy the suffix."""
    n = context_tokens
    x, s = (_empty_as_neg_inf(lse[:, :n]) for lse in (prefix_lse, suffix_lse))
    if kv_lens is not None and cum_seq_lens is not None:
        x = x.masked_fill(rows_without_kv(n, kv_lens, cum_seq_lens), _NEG_INF)
    no_prefix, no_suffix = x == _NEG_INF, s == _NEG_INF

    # Where a side is empty these are NaN or meaningless; `where` below drops them, a product with 0 would not.
    top = torch.maximum(x, s)
    ex, es = ((torch.exp2 if base2 else torch.exp)(lse - top) for lse in (x, s))
    total = ex + es
    merged_lse = top + (torch.log2 if base2 else torch.log)(total)
    merged = prefix_output[:n].float() * _per_row(ex / total) + suffix_output[:n].float() * _per_row(es / total)

    masks = (no_prefix & ~no_suffix, no_suffix & ~no_prefix, no_prefix & no_suffix)
    row_masks = tuple(map(_per_row, masks))

    if output_scale is None:
        head = _pick(row_masks, 0, merged.to(prefix_output.dtype), prefix_output[:n], suffix_output[:n])
        output[:n].copy_(head)
        if output.data_ptr() != suffix_output.data_ptr():  # in place nothing is to be copied, and torch may refuse to
            output[n:].copy_(suffix_output[n:])
    else:
        inverse = output_scale.reshape(()).reciprocal()
        head = _pick(row_masks, 0, merged, prefix_output[:n].float(), suffix_output[:n].float())
        _copy_fp8(output[:n], head, inverse)
        _copy_fp8(output[n:], suffix_output[n:].float(), inverse)
    if output_lse is not None:
        rest = suffix_lse[:, n:]
        head_lse = _pick(masks, _NEG_INF, merged_lse, x, s)
        output_lse[:, :n].copy_(head_lse * math.log(2) if base2 else head_lse)
        output_lse[:, n:].copy_(rest * math.log(2) if base2 else rest)


def rows_without_kv(tokens: int, kv_lens: torch.Tensor, cum_seq_lens: torch.Tensor) -> torch.Tensor:
    """Bool [tokens]: whether a token belongs to a request whose KV is empty. Tokens of no request do not."""
    if kv_lens.shape[0] == 0:
        return torch.zeros(tokens, dtype=torch.bool, device=kv_lens.device)
    token = torch.arange(tokens, dtype=cum_seq_lens.dtype, device=kv_lens.device)
    # Zero-length requests repeat an offset: the first end past the token is the request that holds it.
    request = torch.searchsorted(cum_seq_lens[1:].contiguous(), token, right=True)
    inside = (token >= cum_seq_lens[0]) & (token < cum_seq_lens[-1])
    return inside & (kv_lens <= 0)[request.clamp(max=kv_lens.shape[0] - 1)]


def _empty_as_neg_inf(lse: torch.Tensor) -> torch.Tensor:
    # masked_fill, not where: `where` copies its scalar to the device, which is a sync.
    return lse.masked_fill(lse.isinf(), _NEG_INF)


def _pick(
    masks: Sequence[torch.Tensor], neither: float, both: torch.Tensor, prefix: torch.Tensor, suffix: torch.Tensor
) -> torch.Tensor:
    only_suffix, only_prefix, empty = masks
    return torch.where(only_suffix, suffix, torch.where(only_prefix, prefix, both)).masked_fill(empty, neither)


def _per_row(x: torch.Tensor) -> torch.Tensor:
    """[heads, tokens] -> [tokens, heads, 1]"""
    return x.t()[:, :, None]


def _copy_fp8(output: torch.Tensor, values: torch.Tensor, inverse: torch.Tensor) -> None:
    output.copy_((values * inverse).clamp(-_FP8_MAX, _FP8_MAX).to(output.dtype))
