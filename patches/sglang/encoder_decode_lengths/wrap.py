"""Correction of sglang.encoder-decode-lengths.

With `seq_lens_cpu` the host's indptr is made from it, for both
wrappers; without, FlashInfer copies the indptr that was made for each.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call


def plans_from_the_text(target: Any, instance: Any, seq_lens_cpu: Any, decode_wrappers: Any) -> bool:
    return seq_lens_cpu is not None and planned_from_host(decode_wrappers)


def update_cross_attention(call: Call, instance: Any, seq_lens_cpu: Any) -> Any:
    """`seq_lens_cpu`: int tensor [bs] on the host, lengths of the text. Withheld where a plan would be made from it."""
    result = call(seq_lens_cpu=shown(seq_lens_cpu))
    call.corrected(rows=seq_lens_cpu.shape[0])
    return result


def shown(lens: Any) -> Any:
    """The lengths on the host that the engine gets instead: none."""
    return None


def planned_from_host(wrappers: Any) -> bool:
    """Whether the engine has put its fast plan, a partial, in the place of FlashInfer's own: so from a graph's capture on."""
    return hasattr(wrappers[1].begin_forward, "func")
