"""What decides vllm.dcp-page-counts alone."""

from __future__ import annotations

from packaging.version import Version

from attnfix.compat.doctor.condition import Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers


def _page_counts(it: Deployment) -> Fact:
    if it.release is None or it.release >= Version("0.14.0"):
        return known("wrong", "in every step, from 0.14.0 on")
    return Fact(("wrong", "right"), "up to 0.13.0 wrong with interleaved KV, a drafter or several attention groups alone")


FACTS: Makers = {
    "FlashInfer's page counts": _page_counts,
}
