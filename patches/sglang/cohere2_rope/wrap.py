"""Correction of sglang.cohere2-rope.

Cohere 2 has three layers with a sliding window and RoPE, then one that sees all tokens and rotates none. The engine makes all
layers alike. Here a layer of the second kind keeps its queries and keys as they are, and one of the first kind has its window,
where all backends of the server read it from the layer.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch

#: Backends that take the window from the layer alone. Others need it of the runner, which shares out memory by it, too
READ_WINDOWS = "fa3", "trtllm_mha"
#: Arguments with which fa3 has no windows: it lists by the runner's window what window layers see of a tree of drafts, and with
#: windows the ends of a prompt's chunks change bits
WITHOUT_WINDOWS = "speculative_algorithm", "enable_deterministic_inference"
#: In the place of a window
UNROTATED = -1
_WINDOW = "sliding_attention"


def of_cohere2(target: Any, instance: Any, config: Any, layer_id: int = 0) -> int | None:
    """What a layer of Cohere 2 lacks, on a server that keeps its keys to itself: its window, or that it does not rotate."""
    if getattr(config, "model_type", None) != "cohere2":
        return None
    args = launch.server_args()
    if shared_by := launch.sharer(args):
        target.leave_out(f"{shared_by} shares keys, which would not be rotated")
        return None
    if config.layer_types[layer_id] != _WINDOW:
        return UNROTATED
    return window(config.sliding_window) if reads_windows(args) else None


def reads_windows(args: Any) -> bool:
    if bars_windows(args):
        return False
    chosen = (getattr(args, f"{phase}_attention_backend", None) or args.attention_backend for phase in ("prefill", "decode"))
    return all(one in READ_WINDOWS for one in chosen)


def bars_windows(args: Any) -> bool:
    return any(getattr(args, name, None) for name in WITHOUT_WINDOWS)


def window(tokens: int) -> int:
    """How many tokens a token sees before itself; config.json counts the token, too."""
    return tokens - 1


def init(call: Call, instance: Any) -> Any:
    result = call()
    if call.found == UNROTATED:
        vars(instance)["rotary_emb"] = as_they_are
    else:
        instance.attn.sliding_window_size = call.found
    call.corrected()
    return result


def as_they_are(positions: Any, query: Any, key: Any) -> tuple[Any, Any]:
    """In the place of a rotary embedding."""
    return query, key
