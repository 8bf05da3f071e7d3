"""What speculative decoding hands to sglang's attention."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any


def choose_in_torch() -> None:
    """Up to 0.5.4 the choice of the best drafts is a kernel's, which modules of drafts cannot be imported without."""
    utils = import_module("sglang.srt.utils")
    for name in ("eagle_utils", "spec_utils"):
        with suppress(ModuleNotFoundError):
            vars(import_module(f"sglang.srt.speculative.{name}")).setdefault("fast_topk", utils.fast_topk)


def draft_input(module: Any, **told: Any) -> Any:
    """The engine's draft input, of which attention reads that it is one, and what it is told besides. module: the one that has
    `EagleDraftInput`; None, or one without it, where the release has it elsewhere."""
    former = getattr(module, "EagleDraftInput", object)  # of which 0.5.1 and 0.5.2 want an instance

    class Draft(former):  # type: ignore[misc, valid-type]
        ragged_verify_layout = None

        def __init__(self) -> None:
            pass

        def is_draft_input(self) -> bool:
            return True

    for name, value in told.items():  # of the class, as a property of the engine's would hide what the object has
        setattr(Draft, name, value)
    return Draft()
