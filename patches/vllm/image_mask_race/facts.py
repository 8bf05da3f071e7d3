"""What decides vllm.image-mask-race alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import async_scheduling, hidden_states_drafter

_PARTS = ("vision_config", "audio_config", "thinker_config")
_PADDED = "speculative-config.disable_padded_drafter_batch"


def _inputs(it: Deployment) -> Fact:
    """Whether a model reads images, audio or video."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if option := next(filter(it.given, ("language-model-only", "limit-mm-per-prompt")), None):
        return unknown(f"--{option} may leave images out")
    if part := next((part for part in _PARTS if part in it.config), None):
        return known(ON, f"config.json has {part}")
    name = str(it.architecture())
    if name.endswith("ForConditionalGeneration") and not it.config.get("is_encoder_decoder"):
        return known(ON, f"architecture {name}")
    return known(OFF, f"architecture {name}") if name.endswith("ForCausalLM") else unknown(f"not known of {name}")


def _ahead(it: Deployment) -> Fact:
    """Whether a step writes its mask before that of the last one is copied."""
    if it.release is not None and not it.since("0.12.0"):
        return known(OFF, f"vLLM {it.release} waits for the mask")
    return async_scheduling(it)


def _shared(it: Deployment) -> Fact:
    """Whether a drafter writes its mask before that of the target is copied."""
    fact = hidden_states_drafter(it)
    if fact.values != (ON,) or not it.given(_PADDED):
        return fact
    option = it.option(_PADDED)
    return known(OFF if str(option.values[0]).lower() in (ON, "true", "1") else ON, option.why) if option.values else option


FACTS: Makers = {
    "inputs other than text": _inputs,
    "mask of images ahead of its copy": _ahead,
    "mask of images shared with a drafter": _shared,
}
