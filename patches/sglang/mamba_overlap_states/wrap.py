"""Correction of sglang.mamba-overlap-states.

With overlap, a step is launched before the result of the last one is processed. The radix cache keeps a request's state then,
which the step in flight writes in place: neither a wait nor a copy brings back what it was. So steps run one at a time.
"""

from __future__ import annotations

from typing import Any

#: Configs of models whose recurrent states the radix cache keeps
_KEPT = ("Qwen3NextConfig", "JetNemotronConfig", "JetVLMConfig")


def overlaps(target: Any, instance: Any) -> bool:
    """Whether the arguments of a launch, settled by now, ask for overlap beside states that are kept."""
    off = instance.disable_radix_cache or instance.disable_overlap_schedule or instance.speculative_algorithm
    return not off and type(instance.get_hf_config()).__name__ in _KEPT


def handle_other_validations(call: Any, instance: Any) -> Any:
    result = call()
    one_at_a_time(instance)
    call.corrected()
    return result


def one_at_a_time(args: Any) -> None:
    args.disable_overlap_schedule = True
