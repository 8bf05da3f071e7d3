"""Whose batch it is."""

from __future__ import annotations

from typing import Any


def of_requests(forward_batch: Any) -> bool:
    """Whether requests came with it. The engine captures prefill graphs and warms up with batches of its own, which nobody
    samples from; whether it captures just now, no release says of all kinds of graphs."""
    return getattr(forward_batch, "sampling_info", None) is not None
