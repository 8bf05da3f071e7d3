"""Multi-head latent attention, as DeepSeek's models have it: what is drawn, where, and what should come out.

A layer projects its input to queries and to a latent, which is what the cache holds. Both are drawn here, behind the
projections and the norm; what comes out is compared before the output projection, so that each way that the engine takes to it
is tried: on the latent itself, or on the keys and values of each head that are made of it, at once or chunk by chunk.

The up-projection of the latent is the identity: a head's keys and values are slices of the latent. And no position rotates. So
no arithmetic but attention's own rounds, and the cache holds, also in FP8, exactly what the reference reads. That positions are
right is looked at where a batch is laid out.
"""

from __future__ import annotations

from typing import Any

OWNER = "DeepseekV2AttentionMLA"


def is_latent(layer: Any) -> bool:
    return type(layer).__name__ == OWNER


def shape(layer: Any, what: str) -> tuple[int, int]:
    """(heads, width) of "q", of the latent "k" with its rotary part behind it, and of "v", the result."""
    return {
        "q": (layer.num_local_heads, layer.qk_head_dim), "k": (1, layer.kv_lora_rank + layer.qk_rope_head_dim),
        "v": (layer.num_local_heads, layer.v_head_dim),
    }[what]  # fmt: skip


def of_each_head(layer: Any, latent: Any) -> tuple[Any, Any]:
    """Keys [tokens, heads, d] and values [tokens, heads, dv] of `latent`, [tokens, 1, rank + rotary part]."""
    import torch

    heads, nope = layer.num_local_heads, layer.qk_nope_head_dim
    up = latent[:, 0, : layer.kv_lora_rank].reshape(len(latent), heads, nope + layer.v_head_dim)
    rotary = latent[:, :, layer.kv_lora_rank :].expand(-1, heads, -1)
    return torch.cat([up[..., :nope], rotary], -1), up[..., nope:]


def settle(owner: Any, part: Any) -> None:
    """Let a layer's rotation turn by nothing."""
    if is_latent(owner) and hasattr(part, "cos_sin_cache"):
        cos, sin = part.cos_sin_cache.chunk(2, -1)
        cos.fill_(1)
        sin.fill_(0)


def settle_weights(model: Any) -> None:
    """Let the up-projection be the identity."""
    import torch

    for layer in filter(is_latent, model.modules()):
        torch.nn.init.eye_(layer.kv_b_proj.weight.data)
