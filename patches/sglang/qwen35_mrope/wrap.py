"""Correction of sglang.qwen35-mrope.

The engine's kernel rotates a token by the row of a table of cosines and sines that the token's first position names. Where the
three positions of a token can differ, it is handed a table with a row for each token. Every lane of a row comes from the
position that M-RoPE rotates it by. Rows of text hold the numbers that the kernel reads without a correction.

The engine's other path, which takes three positions, would not do: its first call replaces the table, from whose address
captured graphs read.

A layer gets its own `self_attention` when it is built: the engine compiles a layer whole, and a compiler has to see through it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call

QWEN = "sglang.srt.models.qwen3_5"


def init(call: Call, instance: Any) -> Any:
    result = call()
    if takes_one_position(instance):
        instance.self_attention = self_attention(call, instance)
    return result


def takes_one_position(layer: Any) -> bool:
    """Whether the layer runs that kernel, and interleaves the lanes of the three positions as Qwen3.5 does."""
    rotary = layer.rotary_emb
    interleaved = getattr(rotary, "mrope_interleaved", False) and not getattr(rotary, "mrope_interleaved_glm", False)
    return bool(sys.modules[QWEN]._is_cuda and layer.attn_output_gate and interleaved and rotary.mrope_section)


def self_attention(call: Call, layer: Any) -> Callable[..., Any]:
    """The layer's `self_attention`."""
    import torch

    compiles = torch.compiler.is_compiling

    def prepared(positions: Any, hidden_states: Any, forward_batch: Any) -> Any:
        """int64 [tokens], and what the kernel reads of `rotary_emb`; None for a batch that is right without, or has more rows
        than positions."""
        if positions.ndim != 2 or positions.shape[1] < len(hidden_states) or not may_differ(forward_batch):
            return None
        table = cos_sin(layer.rotary_emb, positions)
        rows = torch.arange(len(table), device=positions.device)
        return rows, SimpleNamespace(cos_sin_cache=table, rotary_dim=layer.rotary_emb.rotary_dim)

    def nothing(*given: Any) -> None: ...

    prepare = call.guard(prepared, nothing)

    def corrected(positions: Any, hidden_states: Any, forward_batch: Any) -> Any:
        engines = type(layer).self_attention
        found = None if compiles() else prepare(positions, hidden_states, forward_batch)
        if found is None:
            return engines(layer, positions, hidden_states, forward_batch)
        positions, shown = found
        own = vars(layer)
        own["rotary_emb"] = shown  # hides the module of that name, which stays where modules are
        try:
            result = engines(layer, positions, hidden_states, forward_batch)
        finally:
            del own["rotary_emb"]
        if images_known(forward_batch):
            call.corrected()
        return result

    return corrected


def may_differ(forward_batch: Any) -> bool:
    """Whether the three positions of a token may differ: in prompts, unless all of them are known to be text.

    The engine takes the images off the batch before its layers run, and a batch at capture has none.
    """
    images = forward_batch.mm_inputs
    prompts = forward_batch.forward_mode.is_extend_or_draft_extend_or_mixed()
    return prompts and (images is None or any(image is not None for image in images))


def images_known(forward_batch: Any) -> bool:
    """Whether the batch is known to hold an image. One that is captured or replayed does not say so."""
    embedded = getattr(forward_batch, "mm_input_embeds", None)
    return embedded is not None or any(image is not None for image in forward_batch.mm_inputs or ())


def cos_sin(rotary: Any, positions: Any) -> Any:
    """[tokens, rotary_dim] of `positions` [3, tokens]: cosines, then sines, as the engine's cache has them for a position."""
    by_axis = rotary.cos_sin_cache[positions]
    lanes = by_axis.unflatten(-1, (2, -1))
    for axis in (1, 2):
        own = slice(axis, 3 * rotary.mrope_section[axis], 3)
        lanes[0, ..., own] = lanes[axis, ..., own]
    return by_axis[0]
