"""What decides vllm.rocm-mm-prefix alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, NO_LAUNCH, Deployment, Makers

#: model_type of models whose images are seen both ways (`is_mm_prefix_lm` of 0.18.0-0.31.0)
_MODELS = "bagel", "gemma3", "molmo2", "moondream3", "paligemma", "umm"
_AITER, _UNIFIED = "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION"
_NATIVE, _TRITON, _LIBRARY = "ROCM_ATTN", "TRITON_ATTN", "ROCM_AITER_UNIFIED_ATTN"
_KINDS = "attention-config.backend_per_kind"
_SPLIT = "attention-config.use_prefill_decode_attention"


def _both_ways(it: Deployment) -> Fact:
    """Gemma 4 is left out: where the sizes of its heads differ, its config asks for TRITON_ATTN."""
    if it.config is None:
        return unknown(NO_CONFIG)
    name = it.config.get("model_type")
    if name not in _MODELS and not it.config.get("is_mm_prefix_lm"):
        return known(OFF, f"model_type {name}")
    if option := next(filter(it.given, ("language-model-only", "limit-mm-per-prompt")), None):
        return unknown(f"--{option} may leave images out")
    return known(ON, f"model_type {name}")


def _backend(it: Deployment) -> Fact:
    """The backend that AMD's platform takes for such a model, or that was named."""
    for option in ("attention-backend", "attention-config.backend"):
        if it.given(option):
            fact = it.option(option)
            return known(str(fact.values[0]).upper(), fact.why)
    if it.launch is None:
        return unknown(NO_LAUNCH)
    if it.given(_KINDS):
        return unknown(f"--{_KINDS} names backends")
    if it.launch.not_read:
        return it.option("attention-backend")
    if it.release is None:
        return unknown("needs the release")
    if not it.since("0.19.0"):
        if it.truth(_AITER) and it.truth(_UNIFIED):
            return known(_LIBRARY, f"${_UNIFIED}")
        asked = str(it.option(_SPLIT, OFF).values[0]).lower() in (ON, "true", "1")
        return known(_NATIVE, f"--{_SPLIT}") if asked else known(_TRITON, f"default of vLLM {it.release}")
    return known(_NATIVE, f"the first that vLLM {it.release} tries on AMD")


FACTS: Makers = {
    "images seen both ways": _both_ways,
    "backend on AMD": _backend,
    "named attention backend": lambda it: (
        known(ON, "--attention-backend") if it.given("attention-backend", "attention-config.backend", _KINDS) else known(OFF)
    ),
}
