"""sglang.fa3-scheduler-metadata: FlashAttention 3's schedule is made for other heads than a rank has."""

from .fix import FIX

__all__ = ["FIX"]
