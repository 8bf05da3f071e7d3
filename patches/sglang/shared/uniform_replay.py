"""What both uniform-replay-stride corrections do: show the engine's replay a draft input of equal lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attnfix.compat.fix import Call

_LENGTHS = "attnfix_uniform_lengths"


class UniformSpec:
    """A draft input whose requests all have the same length; everything else is read from the real one."""

    __slots__ = ("_spec_info", "accept_length", "accept_length_cpu")

    def __init__(self, spec_info: Any, accept_length: Any, accept_length_cpu: list[int]):
        self._spec_info, self.accept_length, self.accept_length_cpu = spec_info, accept_length, accept_length_cpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec_info, name)


def stride(spec_info: Any, own: int) -> int:
    """Query tokens of each request in the graph that is replayed: the number that its runner leaves on the draft input, else
    the backend's `own`. --enable-multi-layer-eagle captures layer i with i tokens more, which no backend knows."""
    told = getattr(spec_info, "num_tokens_per_req", 0) or getattr(spec_info, "num_tokens_per_batch", 0)  # 0.5.9 on; 0.5.8
    return told if told > 0 else own


def uniform(instance: Any, spec_info: Any, length: int, room: int, device: Any) -> Any:
    """`spec_info` with `length` tokens for each of up to `room` requests.

    The tensor is made once per backend and length, so that replays allocate nothing: the engine takes the slice of its batch.
    """
    made = vars(instance).setdefault(_LENGTHS, {})
    if length not in made:
        import torch

        made[length] = torch.full((room,), length, dtype=torch.int32, device=device), [length] * room
    return UniformSpec(spec_info, *made[length])


def is_draft_extend(target: Any, instance: Any, forward_mode: Any) -> bool:
    return forward_mode.is_draft_extend_v2()


def replay(
    call: Call, instance: Any, bs: int, spec_info: Any, device: Any, sizes: Callable[[Any, Any], tuple[int, int]]
) -> Any:
    """The engine's replay of spec v2's draft extend, with equal lengths; `sizes(instance, spec_info)`: these, and the room."""
    result = call(spec_info=uniform(instance, spec_info, *sizes(instance, spec_info), device))
    call.corrected(rows=bs)
    return result
