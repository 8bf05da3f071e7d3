"""What decides sglang.flashinfer-soft-cap alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.sglang import GEMMA, MLA_SINCE, PLAIN, model

#: Architecture -> what its model takes where config.json names no cap
_CAP_UNNAMED = {"Gemma2ForCausalLM": 50.0, "Grok1ForCausalLM": 30.0, "Grok1ModelForCausalLM": 30.0}
_NAME = "attn_logit_softcapping"


def _soft_cap(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in _CAP_UNNAMED:
        cap = it.config.get(_NAME, _CAP_UNNAMED[architecture]) or 0.0
        return known(ON if cap > 0 else OFF, f"{architecture} with {_NAME} {cap:g}")
    if architecture in PLAIN or architecture in MLA_SINCE or architecture in GEMMA:
        return known(OFF, f"{architecture} has none")
    if (row := model(it)) and row.cap == "none":
        return known(OFF, f"{architecture} has none, {row.line}")
    return unknown(f"whether {architecture} has one was not read")


FACTS: Makers = {"soft cap of scores": _soft_cap}
