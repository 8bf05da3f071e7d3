"""What decides sglang.xqa-verify-mask alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA


def _kernel(it: Deployment) -> Fact:
    """What FlashInfer runs behind the backend's decode kernel."""
    if it.gpu is None:
        return unknown(NO_GPU)
    return known("XQA" if it.gpu.maker == NVIDIA and it.gpu.generation in (9, 12) else "its own", str(it.gpu))


FACTS: Makers = {"TRT-LLM MHA's kernel": _kernel}
