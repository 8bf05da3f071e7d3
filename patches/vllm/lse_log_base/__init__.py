"""vllm.lse-log-base: base-2 log-sum-exp is merged as if it were natural."""

from .fix import FIX

__all__ = ["FIX"]
