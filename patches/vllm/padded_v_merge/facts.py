"""What decides vllm.padded-v-merge alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.vllm import head_sizes


def pads_values(it: Deployment) -> Fact:
    """Whether FlashAttention for MLA prefill is one that needs values as wide as keys: 2, or that of other makers.

    Read in 0.21.0-0.25.1.
    """
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.maker != NVIDIA or it.gpu.generation not in (9, 10):
        return known(ON, f"FlashAttention 2 on {it.gpu}" if it.gpu.maker == NVIDIA else str(it.gpu))
    asked = it.number("attention-config.flash_attn_version", 0)
    if not asked.values:
        return asked
    version = int(asked.values[0]) or (3 if it.gpu.generation == 9 else 4)
    if it.gpu.generation == 10:
        dims = head_sizes(it)
        if dims is None:
            return unknown(NO_CONFIG)
        fits = sum(dims[:2]) == 192 or sum(dims[:2]) <= 128
        version = 4 if version == 3 else version
        if version == 4 and not fits:
            return known(ON, f"FlashAttention 4 does not take the head sizes {dims} on {it.gpu}")
    if version == 4 and it.truth("VLLM_BATCH_INVARIANT"):
        return known(ON, "VLLM_BATCH_INVARIANT, which FlashAttention 4 cannot do")
    return known(ON if version == 2 else OFF, f"FlashAttention {version} on {it.gpu}, {asked.why}")


FACTS: Makers = {
    "FlashAttention pads values": pads_values,
}
