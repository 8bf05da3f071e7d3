"""Corrections of vllm.dcp-empty-shard.

The combine of the ranks weighs each partial output by its LSE. An LSE of -inf is enough where the combine leaves out what
weighs nothing; where it multiplies by a weight of 0, NaN stays NaN and the output has to be 0, too.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from attnfix.compat.fix import Call
from attnfix.compat.status.fix_state import KernelObservation

#: `--dcp-comm-backend`: two combines, of which a layer knows its own (`dcp_a2a`, from 0.18.0)
ALL_GATHER, ALL_TO_ALL = "all-gather", "all-to-all"


def writes_no_lse(target: Any, instance: Any, layer: Any) -> Any:
    """What is to be made neutral after a kernel that writes no LSE for a request without KV."""
    return _undefined(target, instance, layer, writes_lse=False)


def writes_an_lse(target: Any, instance: Any, layer: Any) -> Any:
    """The same of Triton's kernel, which writes an LSE of -inf and an output of 0 / 0."""
    return _undefined(target, instance, layer, writes_lse=True)


class Undefined(NamedTuple):
    """What the kernel leaves undefined for a request without KV, and the combine takes."""

    output: bool
    lse: bool


def _undefined(target: Any, instance: Any, layer: Any, writes_lse: bool) -> Undefined | None:
    if (instance.dcp_world_size or 1) <= 1:
        return None
    combine = ALL_TO_ALL if getattr(layer, "dcp_a2a", False) else ALL_GATHER
    path = type(instance).__name__, combine
    if path in target.left_alone:
        return None
    found = Undefined(output=not leaves_out(combine, target.release), lse=not writes_lse)
    if target.observation(path) is None:
        target.observe(path, _finding(found))
    return found if any(found) else None


def decode(call: Call, instance: Any, attn_metadata: Any) -> Any:
    """Returns (out [rows, heads, kv_lora_rank], lse [rows, heads] or None).

    Which requests have nothing on this rank is known on the GPU alone, so every decode on several ranks is masked; it is
    counted, whether or not there was one. Part of what a CUDA graph captures: the lengths are the kernel's own.
    """
    result = call()
    out, lse = result
    if lse is None:
        return result
    seq_lens = attn_metadata.decode.seq_lens
    queries, rest = divmod(out.shape[0], len(seq_lens))
    if not rest:
        undefined = call.found
        neutralize(out if undefined.output else None, lse if undefined.lse else None, seq_lens, queries)
        call.corrected()
    return result


@cache
def leaves_out(combine: str, release: str | None) -> bool:
    """Whether the combine of that release's code leaves out what weighs nothing. The all-to-all's does from 0.28.0 on, which is
    fixed. The release is the ledger's, by digests: a test runs the combine of each."""
    major, minor = (release or "0.0").split(".")[:2]
    return combine == ALL_GATHER and (int(major), int(minor)) >= (0, 25)


def _finding(undefined: Undefined) -> KernelObservation:
    if not any(undefined):
        return KernelObservation("an empty rank has an LSE of -inf, and the combine leaves it out", False)
    return KernelObservation(f"the {'LSE' if undefined.lse else 'output'} of an empty rank is undefined", True)


def neutralize(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
    """Rows of requests without KV get out 0 and LSE -inf, in place; either may be None. `queries` rows of each request, one
    after another. An output is written in those rows alone, and not read, where one of our kernels can run."""
    import torch

    if out is not None and kernel_takes(out):
        from attnfix.kernels import fixup_zero_kv_rows

        starts = torch.arange(0, len(out) + 1, queries, dtype=torch.int32, device=out.device)
        whole = lse is not None and lse.dtype == torch.float32
        fixup_zero_kv_rows(out, lse if whole else out.new_empty(out.shape[:2], dtype=torch.float32), seq_lens, starts)
        out, lse = None, None if whole else lse
    if out is None and lse is None:
        return
    empty = seq_lens == 0
    if queries > 1:
        empty = empty.repeat_interleave(queries)
    if out is not None:
        out.masked_fill_(empty[:, None, None], 0)
    if lse is not None:
        lse.masked_fill_(empty[:, None], float("-inf"))


def kernel_takes(out: Any) -> bool:
    """Whether `fixup_zero_kv_rows` takes an output of this form, and has a kernel for this build of torch."""
    import torch

    _, heads, size = out.shape
    fits = heads <= 256 and size <= 576 and size % 8 == 0 and out.dtype in (torch.bfloat16, torch.float16, torch.float32)
    return fits and torch.version.hip is None
