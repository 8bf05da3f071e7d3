"""Correction of sglang.verify-ranks.

Each rank verifies drafts from logits of its own. Where rounding differs among ranks and two tokens are as likely, they accept
different drafts. The first rank of a group decides for all, as it does in releases without the bug.
"""

from __future__ import annotations

import sys
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch
from attnfix.patches.shared.rebound import rebound

_GREEDY, _SAMPLING = ("verify_tree_greedy", "verify_tree_greedy_func"), ("tree_speculative_sampling_target_only",)
_ATTENTION, _GROUPS = "sglang.srt.layers.dp_attention", "sglang.srt.distributed.parallel_state"


def of_several_ranks(target: Any, instance: Any, batch: Any) -> Any:
    """The ranks that verify the same requests, and the kernels whose decision they do not share; None: all is shared."""
    if batch.forward_mode.is_idle():
        return None
    kernels = undecided(target.function, amd(), batch.sampling_info.is_all_greedy)
    ranks = group() if kernels else None
    if ranks is None or ranks.world_size == 1:
        return None
    args = launch.server_args()
    if args is None or args.nnodes > 1:
        target.leave_out("ranks of another machine, which may lack attnfix, would wait for a message")
        return None
    return ranks, kernels


def undecided(function: Any, amd: bool, greedy: bool) -> list[str]:
    """Kernels that the engine's code calls on this machine, and of which each rank keeps its own decision.

    On AMD these are all: equal logits differ there. On NVIDIA sampling divides ranks, which share it from 0.5.11 on."""
    names, here = function.__code__.co_names, function.__globals__
    sampling = _SAMPLING if not greedy and "broadcast" not in names else ()
    return [name for name in (*(_GREEDY if amd else ()), *sampling) if name in names and name in here]


def amd() -> bool:
    import torch

    return torch.version.hip is not None


def group() -> Any:
    """Ranks with the same requests: under DP attention those of attention."""
    attention, groups = sys.modules[_ATTENTION], sys.modules[_GROUPS]
    if not attention.is_dp_attention_enabled():
        return groups.get_tp_group()
    ask = getattr(attention, "get_attention_tp_group", None) or groups.get_attn_tp_group
    return ask()


def verify(call: Call, instance: Any) -> Any:
    """The engine's own code, behind whose kernels the first rank's decision goes to all."""
    ranks, kernels = call.found
    stock = call.target.function.__globals__

    def share(result: Any, *_: Any, predicts: Any, accept_index: Any, accept_token_num: Any, **__: Any) -> None:
        decide(ranks, (predicts, accept_index, accept_token_num) if result is None else result)
        call.corrected()

    return call.run(rebound(call.target.function, **{name: call.watch(stock[name], share) for name in kernels}))


def decide(ranks: Any, decision: Any) -> None:
    """decision: the kernel's tokens, int32 [tokens of drafts], places of accepted ones, int32 [requests, drafts + 1], and how
    many these are, int32 [requests]. They are written in place."""
    for part in decision:
        ranks.broadcast(part, src=0)
