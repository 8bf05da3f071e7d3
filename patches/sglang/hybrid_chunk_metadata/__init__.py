"""sglang.hybrid-chunk-metadata: behind a hybrid backend, nobody plans the attention of a chunked prefix."""

from .fix import FIX

__all__ = ["FIX"]
