"""vllm.dcp-decode-lse-base: FlashInfer's decode on several ranks is combined with the wrong base."""

from .fix import FIX

__all__ = ["FIX"]
