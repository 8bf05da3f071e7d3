"""sglang.triton-swa-deterministic: deterministic prefill on Triton reads window layers' keys from slots of the full pool."""

from .fix import FIX

__all__ = ["FIX"]
