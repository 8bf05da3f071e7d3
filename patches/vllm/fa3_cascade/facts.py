"""What decides vllm.fa3-cascade alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA


def _cascade(it: Deployment) -> Fact:
    """Whether FlashAttention 3 may attend to a shared prefix once for all."""
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA or it.gpu.generation != 9:
        return known(OFF, f"{it.gpu} has no FlashAttention 3")
    if it.variables().get("VLLM_FLASH_ATTN_VERSION", "3") != "3":
        return known(OFF, "VLLM_FLASH_ATTN_VERSION")
    disabled = it.option("disable-cascade-attn", OFF)
    if disabled.values == (ON,):
        return known(OFF, "--disable-cascade-attn")
    return known(ON, f"default on {it.gpu}") if disabled.values else disabled


def _sinks(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    kind = it.text_config().get("model_type")
    return known(ON if kind == "gpt_oss" else OFF, f"config.json has model_type {kind}")


FACTS: Makers = {
    "cascade attention": _cascade,
    "attention sinks": _sinks,
}
