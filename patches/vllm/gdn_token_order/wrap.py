"""Correction of vllm.gdn-token-order: the engine's own code, with `torch.argsort` bound to one that keeps the order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_NO_DRAFTS = (-1).to_bytes(4, "little", signed=True)


def drafts_beside_others(target: Any, instance: Any, num_decode_draft_tokens_cpu: Any = None) -> bool:
    """Whether a step verifies drafts of some requests, and has others: it parts their tokens.

    num_decode_draft_tokens_cpu: int32 [requests] on the host, -1 where a request has no drafts.
    """
    if num_decode_draft_tokens_cpu is None:
        return False
    drafts = num_decode_draft_tokens_cpu.numpy()
    # No count of drafts has these bytes
    return _NO_DRAFTS in drafts.tobytes() and bool(drafts.max() > 0) and instance.use_spec_decode


def build(call: Call, instance: Any) -> Any:
    """Tokens of both kinds keep their order: their indices are those of the engine, sorted."""
    import torch

    stock = torch.argsort

    class Torch(SimpleNamespace):
        def __getattr__(self, name: str) -> Any:
            return getattr(torch, name)

    def argsort(verified: Any) -> Any:
        return parted(stock, verified)

    result = call.run(rebound(call.target.function, torch=Torch(argsort=call.guard(argsort, stock))))
    call.corrected()
    return result


def parted(argsort: Any, verified: Any) -> Any:
    """Indices of tokens, int64 [tokens]: those that are not `verified`, then those that are, each in their order."""
    return argsort(verified, stable=True)
