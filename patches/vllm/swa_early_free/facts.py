"""What decides vllm.swa-early-free alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import hybrid_manager, sliding_window_layers


def _freed(it: Deployment) -> Fact:
    """Whether layers that see a part of the tokens free the blocks behind it: beside full layers, the hybrid manager does."""
    if it.config is None:
        return unknown(NO_CONFIG)
    if it.config.get("rswa_window"):
        return known(ON, "config.json has rswa_window")
    chunks = it.text_config().get("attention_chunk_size") or it.architecture() == "Llama4ForConditionalGeneration"
    windows = sliding_window_layers(it)
    if not chunks and windows.values != (ON,):
        return windows
    manager = hybrid_manager(it)
    if manager.values != (OFF,):
        return manager
    if chunks or "full_attention" in it.text_config().get("layer_types", ()):
        return known(OFF, f"{manager.why}, and some layers see all tokens")
    return unknown(f"{manager.why}: blocks are freed all the same if no layer sees all tokens, the drafter's included")


FACTS: Makers = {"blocks that windows free": _freed}
