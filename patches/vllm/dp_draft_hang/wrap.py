"""Correction of vllm.dp-draft-hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.attribute import attribute


def missing_passes(target: Any, instance: Any) -> int:
    """Passes of its drafter that a data-parallel rank with requests makes in a step, beyond the one of a dummy batch.

    A tree of drafts that is no chain is left as it is: how many passes it takes depends on the attention backend.
    """
    runner = instance.model_runner
    drafting, drafter = runner.speculative_config, getattr(runner, "drafter", None)
    if drafter is None or runner.vllm_config.parallel_config.data_parallel_size == 1 or not drafting.use_eagle():
        return 0
    drafts = drafting.num_speculative_tokens
    levels = getattr(drafter, "cu_drafts_per_level", None)  # from 0.10.1
    return drafts - 1 if levels is None or len(levels) == drafts else 0


def execute_dummy_batch(call: Call, instance: Any) -> Any:
    """The passes come where those of a step do: behind the model's own, and before experts are balanced."""
    drafter = instance.model_runner.drafter
    once = drafter.dummy_run
    with attribute(drafter, "dummy_run", call.guard(repeated(once, 1 + call.found), once)):
        result = call()
    call.corrected()
    return result


def repeated(once: Callable[..., Any], passes: int) -> Callable[..., None]:
    """`once`, so many times with the same arguments. A dummy pass has no metadata: layers of attention write nothing."""

    def dummy_run(*args: Any, **kwargs: Any) -> None:
        for _ in range(passes):
            once(*args, **kwargs)

    return dummy_run
