"""vllm.quantized-mla-context: the context loops ask a packed weight for the dtype of its input."""

from .fix import FIX

__all__ = ["FIX"]
