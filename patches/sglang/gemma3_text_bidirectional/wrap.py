"""Correction of sglang.gemma3-text-bidirectional.

All layers of Gemma 3 say that tokens of a prompt may see later ones. A batch with images has a mask that says which. A batch of
text has none, and its layers are causal for the call.
"""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.sglang.shared import launch

_BOTH_WAYS = "decoder_bidirectional"


def sees_later_tokens(target: Any, instance: Any, layer: Any) -> bool:
    """Whether the layer attends to a prompt without any mask, and its model is one that writes text."""
    if layer.attn_type.value != _BOTH_WAYS or not instance.allow_bidirectional_attention_in_extend:
        return False
    return instance.forward_metadata.custom_mask is None and _writes_text()


def _writes_text() -> bool:
    """Whether the model is a Gemma 3 that reads in one direction. EmbeddingGemma reads in both."""
    args: Any = launch.server_args()
    config = args.get_model_config().hf_text_config
    return config.model_type == "gemma3_text" and not getattr(config, "use_bidirectional_attention", False)


def forward_extend(call: Call, instance: Any, layer: Any) -> Any:
    own = layer.attn_type
    layer.attn_type = causal(own)
    try:
        result = call()
    finally:
        layer.attn_type = own
    call.corrected()
    return result


def causal(attn_type: Any) -> Any:
    return type(attn_type).DECODER
