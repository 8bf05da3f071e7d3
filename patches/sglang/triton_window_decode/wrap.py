"""Correction of sglang.triton-window-decode.

`sliding_window_size` is how many tokens a token sees before itself. Extend and verify count tokens before the new ones, and
need that number. Decode counts the new token, too, and needs one more: each call that lays out a decode step is shown that.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared.window_layers import alike
from attnfix.patches.shared.attribute import attribute

#: What a backend knows of its model: that decode loses a token of the checkpoint's window
_LOSES = "attnfix_decode_loses_a_token"
#: Where a checkpoint's config has its window
_NAMES = "sliding_window", "sliding_window_size"


def init_backend(call: Call, instance: Any, model_runner: Any) -> Any:
    result = call()
    setattr(instance, _LOSES, loses_a_token(model_runner))
    return result


def loses_a_token(runner: Any) -> bool:
    """Whether the runner's window is the checkpoint's without the token itself, and all window layers have it.

    In some models it is the checkpoint's own: their decode is right. Draft models attend by rows that others lay out.
    """
    window, config = runner.sliding_window_size, runner.model_config.hf_text_config
    if runner.is_draft_worker or window is None or window < 1:
        return False
    return any(getattr(config, name, None) == window + 1 for name in _NAMES) and alike(runner.model, window)


def sizes_for_decode(target: Any, instance: Any) -> bool:
    return getattr(instance, _LOSES, False)


def init_cuda_graph_state(call: Call, instance: Any) -> Any:
    """The buffer of window slots has room for that token of each request."""
    return with_the_token(call, instance)


def decodes(target: Any, instance: Any, forward_batch: Any) -> bool:
    return is_decode(instance, forward_batch.forward_mode, forward_batch.spec_info)


def init_forward_metadata(call: Call, instance: Any, forward_batch: Any) -> Any:
    result = with_the_token(call, instance)
    count(call, forward_batch.seq_lens_cpu, instance.sliding_window_size)
    return result


def replays_decode(
    target: Any, instance: Any, forward_batch: Any = None, bs: Any = None, forward_mode: Any = None, spec_info: Any = None
) -> bool:
    """Up to 0.5.12.post1 the values of the batch are given one by one, later in it."""
    if forward_batch is not None:
        bs, forward_mode, spec_info = forward_batch.batch_size, forward_batch.forward_mode, forward_batch.spec_info
    return is_decode(instance, forward_mode, spec_info) and holds(instance, bs)


def replay(call: Call, instance: Any, forward_batch: Any = None, seq_lens_cpu: Any = None) -> Any:
    """A decode step in a CUDA graph. At capture, in older releases a function of its own, requests have one token."""
    result = with_the_token(call, instance)
    count(call, seq_lens_cpu if forward_batch is None else forward_batch.seq_lens_cpu, instance.sliding_window_size)
    return result


def is_decode(backend: Any, forward_mode: Any, spec_info: Any) -> bool:
    """Draft steps have a `spec_info`, which brings their rows."""
    return spec_info is None and forward_mode.is_decode() and getattr(backend, _LOSES, False)


def holds(backend: Any, requests: int) -> bool:
    """Whether the graphs' buffer has room for all window slots: the kernel that writes them knows no end of it."""
    return len(backend.cuda_graph_window_kv_indices) >= requests * window_of_decode(backend)


def with_the_token(call: Call, backend: Any) -> Any:
    with attribute(backend, "sliding_window_size", window_of_decode(backend)):
        return call()


def window_of_decode(backend: Any) -> int:
    """Tokens that a decode step lists, the new one with them."""
    return backend.sliding_window_size + 1


def count(call: Call, seq_lens: Any, window: int) -> None:
    """Count the requests that got a token: those longer than stock lists; without lengths on the host, the step alone."""
    longer = None if seq_lens is None else int((seq_lens.numpy() > window).sum())
    if longer != 0:
        call.corrected(longer or 0)
