"""Correction of vllm.exaone4-nope.

A model with windows has no positions in layers of full attention. Each layer says to its `forward`, which is the engine's,
whether it rotates. The model's config says so, too: a hash of it is a part of the key that compiled code is cached by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.current_config import current, has_folder_of_code, shares_keys

#: In the model's config: its layers are corrected
MARK = "attnfix_full_attention_without_positions"


def has_windows(target: Any, instance: Any, config: Any) -> bool:
    """Whether the model has layers with a window, so that others have no positions."""
    if "sliding_attention" not in config.layer_types:
        return False
    server = current()
    return server is None or not (shares_keys(target, server) or has_folder_of_code(target, server))


def init(call: Call, instance: Any, config: Any) -> None:
    call()
    if getattr(instance, "apply_all_layers", False) and not rotates(config.layer_types):
        instance.apply_all_layers = False
        setattr(config, *marked())
        call.corrected()


def rotates(kinds: Sequence[str]) -> bool:
    """Whether layers of full attention do, in a model with layers of these kinds."""
    return set(kinds) == {"full_attention"}


def marked() -> tuple[str, bool]:
    return MARK, True
