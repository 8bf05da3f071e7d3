"""vllm.flashmla-fp8-graph: FlashMLA's FP8 decode graph replays the tile schedule of capture."""

from .fix import FIX

__all__ = ["FIX"]
