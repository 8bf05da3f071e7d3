"""What decides vllm.hybrid-stale-bits alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.vllm import attention_backend


def _takes_in(it: Deployment) -> Fact:
    """Whether a kernel of attention multiplies by zero what is masked, so that NaN stays, as read in 0.10.2-0.17.0."""
    backend = attention_backend(it)
    if backend.values == ("TRITON_ATTN",):
        return known(OFF if it.since("0.11.0") else ON, f"{backend.why} TRITON_ATTN")
    if it.gpu is None:
        return unknown(NO_GPU)
    if it.gpu.capability in (90, 100, 103):  # FlashAttention 3, TRT-LLM
        return known(ON, str(it.gpu))
    if it.gpu.maker == NVIDIA and backend.values in (("FLASH_ATTN",), ("FLASHINFER",)):
        return known(OFF, f"{backend.values[0]} on {it.gpu} clears what is masked")
    return unknown(f"the kernels of attention on {it.gpu}")


FACTS: Makers = {"attention takes in masked values": _takes_in}
