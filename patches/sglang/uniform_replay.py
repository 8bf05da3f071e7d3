"""What both uniform-replay-stride corrections do: show the engine's replay a draft input of equal lengths.

The engine's signature, in all releases that are corrected and part of their digests: `init_forward_metadata_replay_cuda_graph(
bs, req_pool_indices, seq_lens, seq_lens_sum, encoder_lens, forward_mode, spec_info, seq_lens_cpu)`. The graph runner
passes keywords, wrapping backends positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_LENGTHS = "attnfix_uniform_lengths"
_BS, _SEQ_LENS, _MODE, _SPEC = 0, 2, 5, 6


class UniformSpec:
    """A draft input whose requests all have the same length; everything else is read from the real one."""

    __slots__ = ("_spec_info", "accept_length", "accept_length_cpu")

    def __init__(self, spec_info: Any, accept_length: Any, accept_length_cpu: list[int]):
        self._spec_info, self.accept_length, self.accept_length_cpu = spec_info, accept_length, accept_length_cpu

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spec_info, name)


def uniform(instance: Any, spec_info: Any, length: int, room: int, device: Any) -> Any:
    """`spec_info` with `length` tokens for each of up to `room` requests.

    The tensor is made once per backend, so that replays allocate nothing: the engine takes the slice of its batch.
    """
    lengths = vars(instance).get(_LENGTHS)
    if lengths is None:
        import torch

        lengths = torch.full((room,), length, dtype=torch.int32, device=device), [length] * room
        setattr(instance, _LENGTHS, lengths)
    return UniformSpec(spec_info, *lengths)


def replay(wrapped: Any, instance: Any, args: tuple, kwargs: dict, sizes: Callable[[Any], tuple[int, int]]) -> Any:
    """Run the engine's replay; in spec v2's draft extend with equal lengths. `sizes(instance)` gives them and the room."""
    mode = args[_MODE] if len(args) > _MODE else kwargs["forward_mode"]
    if not mode.is_draft_extend_v2():
        return wrapped(*args, **kwargs)
    spec_info = args[_SPEC] if len(args) > _SPEC else kwargs["spec_info"]
    seq_lens = args[_SEQ_LENS] if len(args) > _SEQ_LENS else kwargs["seq_lens"]
    spec_info = uniform(instance, spec_info, *sizes(instance), seq_lens.device)
    if len(args) > _SPEC:
        args = (*args[:_SPEC], spec_info, *args[_SPEC + 1 :])
    else:
        kwargs = {**kwargs, "spec_info": spec_info}
    result = wrapped(*args, **kwargs)
    wrapped.corrected(rows=args[_BS] if args else kwargs["bs"])
    return result
