"""Correction of vllm.mamba2-padded-tail."""

from __future__ import annotations

from typing import Any

from attnfix.patches.vllm.shared.unpadded import begun_with_one_token, kinds_of_states, pads, unpadded


def may_pad_a_prompt(target: Any, instance: Any) -> bool:
    """Whether a request waits, which the scheduler may pad, and the model has layers of Mamba2."""
    return bool(instance.waiting or instance.skipped_waiting) and pads(instance) and "MAMBA2" in kinds_of_states(instance)


def schedule(call: Any, instance: Any) -> Any:
    """Returns SchedulerOutput, in which the last token of a prompt is one token, as up to 0.24.0."""
    with unpadded(instance):
        step = call()
    if begun_with_one_token(step):
        call.corrected()
    return step
