"""What decides vllm.dcp-fa2-split alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA


def _version(it: Deployment) -> Fact:
    """Which FlashAttention the backend FLASH_ATTN takes: 2, or others. Read in 0.26.0-0.33.0 (`get_flash_attn_version`)."""
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA:
        return unknown(f"{it.gpu}: whose FlashAttention it is was not read")
    if it.gpu.generation not in (9, 10):
        return known("2", f"FlashAttention 2 on {it.gpu}")
    asked = it.number("attention-config.flash_attn_version", 0)
    if not asked.values:
        return asked
    if int(asked.values[0]) == 2:
        return known("2", asked.why)
    if it.gpu.generation == 10:
        return unknown(f"{it.gpu}: FlashAttention 2 for what 4 does not serve there")
    return known("others", f"{it.gpu}, {asked.why}")


FACTS: Makers = {"FlashAttention of FLASH_ATTN": _version}
