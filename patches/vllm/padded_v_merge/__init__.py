"""vllm.padded-v-merge: outputs of FlashAttention with padded values, merged by the strides of others."""

from .fix import FIX

__all__ = ["FIX"]
