"""What decides sglang.flashinfer-swa-prefill alone."""

from __future__ import annotations

FACTS: dict = {}
