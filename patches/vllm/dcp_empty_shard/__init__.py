"""vllm.dcp-empty-shard: MLA decode on several ranks, of which some hold nothing of a request."""

from .fix import FIX

__all__ = ["FIX"]
