"""sglang.uniform-replay-stride-mla: draft-extend replay on TRT-LLM MLA follows accept lengths."""

from .fix import FIX

__all__ = ["FIX"]
