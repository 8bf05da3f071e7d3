"""What decides vllm.image-split alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers

#: model_type -> first release that attends both ways within images of such models (`is_mm_prefix_lm`)
_SINCE = {
    "gemma3": "0.13.0",
    "paligemma": "0.14.0",
    "molmo2": "0.15.0",
    "bagel": "0.18.0",
    "umm": "0.20.0",
    "moondream3": "0.21.0",
}
#: Where the text's config asks for it
_GEMMA4 = {"gemma4": "0.20.0", "gemma4_unified": "0.23.0"}


def _both_ways(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    name = str(it.config.get("model_type"))
    since = _SINCE.get(name)
    if it.text_config().get("use_bidirectional_attention") == "vision":
        since = _GEMMA4.get(name)
    elif name == "deepseek_v4" and it.config.get("vision_n_layers"):
        since = "0.30.0"
    elif it.config.get("is_mm_prefix_lm"):
        since = "0.17.0"
    if since is None or not it.since(since):
        return known(OFF, f"model_type {name}")
    if option := next(filter(it.given, ("language-model-only", "limit-mm-per-prompt")), None):
        return unknown(f"--{option} may leave images out")
    return known(ON, f"model_type {name}")


FACTS: Makers = {"images attended both ways": _both_ways}
