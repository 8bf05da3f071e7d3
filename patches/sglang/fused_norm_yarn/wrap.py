"""Correction of sglang.fused-norm-yarn.

The fused kernel's factor of YaRN is `max_position_embeddings` over the original length, as config.json has both. Published
checkpoints of Qwen3 MoE have 40,960 there, whatever factor their user asks for. Here the layer has a config whose length is
what the factor makes of the original one; nothing else in the layer reads that length of it.
"""

from __future__ import annotations

import copy
from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch


def other_length(target: Any, instance: Any, config: Any = None) -> float | None:
    """The length that the factor asks for, where config.json has another one and the fused kernel may run."""
    found = asked_length(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {})
    if found is None or found == config.max_position_embeddings or not target.function.__globals__["_is_cuda"]:
        return None
    args = launch.server_args()
    if args is not None and not args.enable_fused_qk_norm_rope:
        return None
    if shared_by := launch.sharer(args):
        target.leave_out(f"{shared_by} shares keys, which would be rotated otherwise")
    return None if shared_by else found


def asked_length(rope: Any) -> float | None:
    """Factor times original length, of settings of YaRN."""
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    yarn = (rope.get("rope_type") or rope.get("type")) == "yarn"
    return factor * original if yarn and factor and original else None


def init(call: Call, instance: Any, config: Any) -> Any:
    own = copy.copy(config)
    vars(own)["max_position_embeddings"] = call.found
    result = call(config=own)
    if instance.use_fused_qk_norm_rope:
        call.corrected()
    return result
