"""vllm.mla-context-order: prefills lose their cached context where they do not come first in the batch."""

from .fix import FIX

__all__ = ["FIX"]
