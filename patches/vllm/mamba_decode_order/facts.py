"""What decides vllm.mamba-decode-order alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers

_TABLE = "speculative-config.num_speculative_tokens_per_batch_size"


def _by_batch_size(it: Deployment) -> Fact:
    """Whether the batch decides how many drafts a step has: it may be none."""
    if not it.given(_TABLE):
        return it.option(_TABLE, OFF)
    if it.given("data-parallel-size"):
        return unknown("vLLM does without the table on several ranks of data parallelism")
    return known(ON, f"--{_TABLE}")


FACTS: Makers = {"drafts by batch size": _by_batch_size}
