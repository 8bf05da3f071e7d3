"""sglang.encoder-decode-lengths: cross attention of a decode graph is planned with the decoder's lengths."""

from .fix import FIX

__all__ = ["FIX"]
