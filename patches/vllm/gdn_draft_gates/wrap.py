"""Correction of vllm.gdn-draft-gates: the engine's own code, with a kernel that gets the gates of its tokens."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound
from attnfix.patches.vllm.shared.marked_steps import metadata_of

#: Set at the metadata of a step in which a verified request stands behind another one
MARK, _KERNEL = "attnfix_gates_elsewhere", "fused_sigmoid_gating_delta_rule_update"


def verified_behind_others(target: Any, instance: Any, num_decode_draft_tokens_cpu: Any = None) -> bool:
    """num_decode_draft_tokens_cpu: int32 [requests] on the host, -1 where a request verifies no drafts."""
    if num_decode_draft_tokens_cpu is None:
        return False
    verified = num_decode_draft_tokens_cpu.numpy() >= 0
    return not verified[: verified.sum()].all()


def build(call: Call, instance: Any) -> Any:
    """What the engine built, with a mark for the layers, unless it took all requests for plain decodes and prefills."""
    metadata = call()
    if metadata.spec_sequence_masks is not None:
        setattr(metadata, MARK, True)
    return metadata


def is_marked(target: Any, instance: Any) -> Any:
    return metadata_of(target, instance, MARK)


def forward_core(call: Call, instance: Any) -> Any:
    """The kernel runs for verified tokens, with numbers of accepted ones, and up to 0.27.1 for decodes in other steps."""
    function, places = call.target.function, call.found.spec_token_indx
    stock = function.__globals__[_KERNEL]

    def update(*args: Any, a: Any, b: Any, num_accepted_tokens: Any = None, **more: Any) -> Any:
        if num_accepted_tokens is not None:
            a, b = of_tokens(a, places), of_tokens(b, places)
        return stock(*args, a=a, b=b, num_accepted_tokens=num_accepted_tokens, **more)

    result = call.run(rebound(function, **{_KERNEL: call.guard(update, stock)}))
    call.corrected()
    return result


def of_tokens(gates: Any, places: Any) -> Any:
    """gates: [tokens of the step, heads]; places: int64 [verified tokens]."""
    return gates.index_select(0, places)
