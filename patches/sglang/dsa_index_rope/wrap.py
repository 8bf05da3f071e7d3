"""Correction of sglang.dsa-index-rope.

The indexer's queries and keys are rotated by halves, those of attention in pairs. Both kinds of layers ask the engine for a
rotary embedding, which it makes once for equal arguments: the indexer's is another one, and that of attention stays.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.shared.rebound import rebound

_MAKER = "get_rope_wrapper"


def on_one_server(target: Any, instance: Any) -> bool:
    """Whether the engine's CUDA kernel rotates, and no other server reads the index keys."""
    names = target.function.__globals__
    if not names["is_cuda"]():
        return False
    mode = disaggregation(names)
    if mode != "null":
        target.leave_out(f"index keys of a {mode} server have readers elsewhere, which may rotate in pairs")
    return mode == "null"


def disaggregation(names: dict[str, Any]) -> str:
    """How this server was launched, as the engine's module asks in each release."""
    ask = names.get("get_global_server_args")
    args = vars(ask()) if ask else names["global_server_args_dict"]  # 0.5.3 and 0.5.3.post1 have the dictionary
    return str(args["disaggregation_mode"])


def init(call: Call, instance: Any) -> None:
    """The engine's maker of rotary embeddings is asked for one that pairs a dimension with the one half a head away."""
    stock = call.target.function.__globals__[_MAKER]

    def get_rope_wrapper(*given: Any, **named: Any) -> Any:
        return stock(*given, **style(named))

    call.run(rebound(call.target.function, **{_MAKER: call.guard(get_rope_wrapper, stock)}))
    if instance.rotary_emb.is_neox_style:
        call.corrected()


def style(named: dict[str, Any]) -> dict[str, Any]:
    return {**named, "is_neox_style": True}
