"""sglang.triton-draft-double-count: draft-extend replay on Triton counts the step's own tokens as cached, too."""

from .fix import FIX

__all__ = ["FIX"]
