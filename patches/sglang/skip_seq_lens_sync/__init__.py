"""sglang.skip-seq-lens-sync: every speculative batch waits for seq_lens on the host."""

from .fix import FIX

__all__ = ["FIX"]
