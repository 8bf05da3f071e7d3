"""What decides vllm.dummy-draft-kv alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import tokens_drafted

_EXPERTS = "num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts"


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


def _lock_step(it: Deployment) -> Fact:
    """Whether data parallel ranks run a step together: those of a model with experts."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    counts = [text[name] for name in _EXPERTS if name in text]
    if counts:
        return known(ON if counts[0] else OFF, f"config.json names {counts[0]} experts")
    if text.get("kv_lora_rank") is not None:
        return known(ON, "config.json has kv_lora_rank, as models with experts do")
    return unknown("config.json names no experts")


FACTS: Makers = {
    "drafts of a dummy batch": _drafts,
    "ranks in lock step": _lock_step,
}
