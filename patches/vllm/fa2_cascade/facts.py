"""What decides vllm.fa2-cascade alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA


def _cascade(it: Deployment) -> Fact:
    """Whether FlashAttention 2 may attend to a shared prefix once for all. Read in 0.10.0-0.11.0 (`get_flash_attn_version`)."""
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA:
        return known(OFF, f"{it.gpu} has another FlashAttention")
    if it.gpu.generation == 9 and it.variables().get("VLLM_FLASH_ATTN_VERSION", "3") != "2":
        return known(OFF, f"FlashAttention 3 on {it.gpu}")
    disabled = it.option("disable-cascade-attn", OFF)
    if disabled.values == (ON,):
        return known(OFF, "--disable-cascade-attn")
    return known(ON, f"default on {it.gpu}") if disabled.values else disabled


def _group(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    heads, kv = (it.text_config().get(f"num_{name}_heads") for name in ("attention", "key_value"))
    if not isinstance(heads, int) or not isinstance(kv, int):
        return unknown("config.json has no num_key_value_heads")
    return known("several" if kv < heads else "one", f"config.json has {heads} heads and {kv} KV heads")


FACTS: Makers = {"cascade attention by FlashAttention 2": _cascade, "queries of a KV head": _group}
