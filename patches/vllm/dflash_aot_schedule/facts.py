"""What decides vllm.dflash-aot-schedule alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.vllm import attention_backend

#: Values of --speculative-config.method whose drafter is DFlash's speculator or derives from it
METHODS = "dflash", "dflash2", "dspark"


def _drafter(it: Deployment) -> Fact:
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    if method.values == ("none",) and it.given("speculative-config"):
        return unknown("--speculative-config without a method: the drafter's config.json decides")
    name = str(method.values[0]).lower()
    return known("DFlash" if name in METHODS else "another", f"{method.why} {name}" if name != "none" else method.why)


def _schedule(it: Deployment) -> Fact:
    """Whether FlashAttention 3 gets one for the drafter, whose own config.json is not read."""
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA or it.gpu.generation != 9:
        return known("none", f"{it.gpu} has no FlashAttention 3")
    backend = attention_backend(it)
    if not backend.values:
        return backend
    if backend.values == ("FLASH_ATTN",):
        return known("none", f"{backend.why} FLASH_ATTN: the target's layers have another window")
    return known("made ahead", f"{backend.why} {backend.values[0]} for the target; drafters of DFlash have a sliding window")


FACTS: Makers = {
    "drafter": _drafter,
    "schedule of the drafter": _schedule,
}
