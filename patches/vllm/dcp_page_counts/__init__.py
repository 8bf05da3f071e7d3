"""vllm.dcp-page-counts: FlashInfer on several ranks takes the pages of all of them for its own."""

from .fix import FIX

__all__ = ["FIX"]
