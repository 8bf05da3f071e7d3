"""sglang.zero-kv-rows: empty KV rows corrupt chunked prefill."""

from .fix import FIX

__all__ = ["FIX"]
