"""sglang.mha-draft-extend-routing: draft extend of spec v2 goes to the decode kernel without metadata for it."""

from .fix import FIX

__all__ = ["FIX"]
