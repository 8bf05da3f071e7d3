"""What decides vllm.dummy-draft-kv alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import tokens_drafted


def _drafts(it: Deployment) -> Fact:
    """How many tokens a dummy batch drafts by the speculator of MTP and EAGLE."""
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none":
        return unknown("--speculative-config without a method") if it.given("speculative-config") else known("none", method.why)
    if not name.endswith("mtp") and name not in ("eagle", "eagle3"):
        return known("none", f"{method.why} {name}")
    return tokens_drafted(it)


FACTS: Makers = {"drafts of a dummy batch": _drafts}
