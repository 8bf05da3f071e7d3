"""What decides vllm.bailing-partial-rotary alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers


def _share(it: Deployment) -> Fact:
    """Whether config.json says how much of a head is rotated where Ling's layers do not look."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    named, rope = text.get("rotary_dim"), text.get("rope_parameters") or {}
    factor = text.get("partial_rotary_factor", rope.get("partial_rotary_factor")) or 1
    if named is not None or factor == 1:
        return known("read", f"config.json has rotary_dim {named}" if named else "config.json has no partial_rotary_factor")
    why = f"config.json has partial_rotary_factor {factor} and no rotary_dim"
    if "partial_rotary_factor" in text and it.release is not None and it.since("0.23.0"):
        return Fact(("not read", "read"), f"{why}; vLLM {it.release} reads it up to transformers 5.19")
    return known("not read", why)


FACTS: Makers = {"share of a head that is rotated": _share}
