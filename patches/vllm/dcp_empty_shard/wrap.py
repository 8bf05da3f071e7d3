"""Corrections of vllm.dcp-empty-shard.

The combine of the ranks weighs each partial output by its LSE. An LSE of -inf is enough where the combine leaves out what
weighs nothing; where it multiplies by a weight of 0, NaN stays NaN and the output has to be 0, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from attnfix.compat.fix import NOT_NEEDED
from attnfix.compat.states import Finding

#: `--dcp-comm-backend`: two combines, of which a layer knows its own (`dcp_a2a`, from 0.18.0)
ALL_GATHER, ALL_TO_ALL = "all-gather", "all-to-all"


def decode(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """`(q, kv_c_and_k_pe_cache, attn_metadata, layer)`; returns (out [rows, heads, kv_lora_rank], lse [rows, heads] or None).

    Of kernels that write no LSE for a request without KV. Which requests have nothing on this rank is known on the GPU alone,
    so every decode on several ranks is masked; it is counted, whether or not there was one. Part of what a CUDA graph captures:
    the lengths are the kernel's own.
    """
    return _neutral(wrapped, instance, args, kwargs, writes_lse=False)


def decode_with_lse(wrapped: Any, instance: Any, args: tuple, kwargs: dict) -> Any:
    """The same of Triton's kernel, which writes an LSE of -inf and an output of 0 / 0."""
    return _neutral(wrapped, instance, args, kwargs, writes_lse=True)


def _neutral(wrapped: Any, instance: Any, args: tuple, kwargs: dict, writes_lse: bool) -> Any:
    if (instance.dcp_world_size or 1) <= 1:
        return NOT_NEEDED
    combine = ALL_TO_ALL if getattr(args[3], "dcp_a2a", False) else ALL_GATHER
    path = type(instance).__name__, combine
    if path in wrapped.state.settled:
        return NOT_NEEDED
    multiplies = not leaves_out(combine, wrapped.state.release)
    if wrapped.finding(path) is None:
        wrapped.found(path, _finding(writes_lse, multiplies))
        if path in wrapped.state.settled:
            return NOT_NEEDED
    result = wrapped(*args, **kwargs)
    out, lse = result
    if lse is None:
        return result
    seq_lens = args[2].decode.seq_lens
    queries, rest = divmod(out.shape[0], len(seq_lens))
    if not rest:
        neutralize(out if multiplies else None, None if writes_lse else lse, seq_lens, queries)
        wrapped.corrected()
    return result


@cache
def leaves_out(combine: str, release: str | None) -> bool:
    """Whether the combine of that release's code leaves out what weighs nothing. The all-to-all's does from 0.28.0 on, which is
    fixed. The release is the ledger's, by digests: a test runs the combine of each."""
    major, minor = (release or "0.0").split(".")[:2]
    return combine == ALL_GATHER and (int(major), int(minor)) >= (0, 25)


def _finding(writes_lse: bool, multiplies: bool) -> Finding:
    if writes_lse and not multiplies:
        return Finding("an empty rank has an LSE of -inf, and the combine leaves it out", False)
    return Finding("the output of an empty rank is undefined" if writes_lse else "the LSE of an empty rank is undefined", True)


def neutralize(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
    """Rows of requests without KV get out 0 and LSE -inf, in place; either may be None. `queries` rows of each request, one
    after another."""
    empty = seq_lens == 0
    if queries > 1:
        empty = empty.repeat_interleave(queries)
    if out is not None:
        out.masked_fill_(empty[:, None, None], 0)
    if lse is not None:
        lse.masked_fill_(empty[:, None], float("-inf"))
