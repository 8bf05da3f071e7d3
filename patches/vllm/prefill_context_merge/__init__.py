"""vllm.prefill-context-merge: the final merge reads the prefix of tokens that have none."""

from .fix import FIX

__all__ = ["FIX"]
