"""What decides vllm.mamba-decode-order alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

_TABLE = "speculative-config.num_speculative_tokens_per_batch_size"


def _by_batch_size(it: Deployment) -> Fact:
    """Whether the batch decides how many drafts a step has: it may be none."""
    return known(ON, f"--{_TABLE}") if it.given(_TABLE) else it.option(_TABLE, OFF)


FACTS: Makers = {"drafts by batch size": _by_batch_size}
