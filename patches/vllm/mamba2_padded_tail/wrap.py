"""Correction of vllm.mamba2-padded-tail."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.one_token import one_may_begin, remember_new_ones
from attnfix.patches.vllm.shared.unpadded import (
    kinds_of_states,
    pads,
    schedule_unpadded,
    short_ones_lead,
    verifies,
)


def may_pad_a_prompt(target: Any, instance: Any) -> bool:
    """Whether a request waits, which the scheduler may pad, and the model has layers of Mamba2."""
    if not (instance.waiting or instance.skipped_waiting) or not pads(instance) or "MAMBA2" not in kinds_of_states(instance):
        return False
    return verifies(instance) and not (short_ones_lead(instance) and one_token_may_begin(instance))


def one_token_may_begin(scheduler: Any) -> bool:
    remember_new_ones(scheduler)
    return one_may_begin(scheduler)


def schedule(call: Call, instance: Any) -> Any:
    """Returns SchedulerOutput, in which the last token of a prompt is one token, as up to 0.24.0."""
    step, computed = schedule_unpadded(call, instance)
    if computed:
        call.corrected()
    return step
