"""vllm.gdn-uniform-decode: short prefills of hybrid models that are taken for speculative decode steps."""

from .fix import FIX

__all__ = ["FIX"]
