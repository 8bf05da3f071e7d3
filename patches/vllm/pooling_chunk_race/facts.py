"""What decides vllm.pooling-chunk-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import async_scheduling


def _ahead(it: Deployment) -> Fact:
    """From 0.20.0 on pooling models are scheduled ahead only where it is asked for."""
    name = "async-scheduling"
    return known(OFF, f"vLLM {it.release}, pooling") if it.since("0.20.0") and not it.given(name) else async_scheduling(it)


FACTS: Makers = {"pooling models ahead of results": _ahead}
