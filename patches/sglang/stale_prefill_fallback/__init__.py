"""sglang.stale-prefill-fallback: a verification takes the FlashInfer path of the prefill before it."""

from .fix import FIX

__all__ = ["FIX"]
