"""Correction of vllm.gdn-launch-assert."""

from __future__ import annotations

from functools import cache
from typing import Any

from attnfix.compat.fix import Call

_NO_DRAFTS = (-1).to_bytes(4, "little", signed=True)


def single_tokens_beside_drafts(
    target: Any, instance: Any, common_attn_metadata: Any, num_accepted_tokens: Any = None,
    num_decode_draft_tokens_cpu: Any = None,
) -> list[int]:  # fmt: skip
    """Which requests, by index, have one token and no drafts while others' drafts are verified.

    num_decode_draft_tokens_cpu: int32 [requests], -1 where a request has no drafts. All on the host.
    """
    if num_decode_draft_tokens_cpu is None or num_accepted_tokens is None:
        return []
    drafts = num_decode_draft_tokens_cpu.numpy()
    if _NO_DRAFTS not in drafts.tobytes():  # as in most steps; no count of drafts has these bytes
        return []
    starts = common_attn_metadata.query_start_loc_cpu.numpy()
    if len(starts) != len(drafts) + 1:
        return []
    found: list[int] = ((starts[1:] - starts[:-1] == 1) & (drafts < 0)).nonzero()[0].tolist()
    return found if found and drafts.max() > 0 else []


def build(call: Call, instance: Any, common_attn_metadata: Any, num_accepted_tokens: Any = None) -> Any:
    """Returns metadata in which a request with one token is a prefill, as the engine has one of two tokens.

    Only where the state that it continues from is that of its first block. What the last step accepted of it says that, and
    lies on the device: reading it waits for the device, in a call that would end the engine.
    """
    if not states_are_in_the_first_block(num_accepted_tokens, call.found):
        return call()
    call.corrected()
    starts = common_attn_metadata.query_start_loc_cpu.as_subclass(starts_without_decodes())
    return call(common_attn_metadata=common_attn_metadata.replace(query_start_loc_cpu=starts))


def states_are_in_the_first_block(accepted: Any, requests: list[int]) -> bool:
    return bool((accepted.cpu()[requests] == 1).all())


@cache
def starts_without_decodes() -> Any:
    """A class of tensors of which no length is found to be one: what the engine counts as decodes."""
    import torch

    equal = torch.Tensor.__eq__, torch.Tensor.eq, torch.eq

    class Starts(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found = super().__torch_function__(function, types, args, kwargs or {})
            if function in equal and isinstance(other := args[1] if len(args) > 1 else None, int) and other == 1:
                return torch.zeros_like(found.as_subclass(torch.Tensor))
            return found

    return Starts
