"""What decides sglang.triton-window-decode alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.sglang import GEMMA, MLA_SINCE, PLAIN

#: Architectures whose model hands its window on without the token itself, in every release that has them
_SHORT = frozenset(
    (
        *GEMMA, "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration",
        "GptOssForCausalLM",
    )
)  # fmt: skip


def _window(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in _SHORT:
        return known("a token short", f"{architecture} hands it on without the token itself")
    if architecture in PLAIN or architecture in MLA_SINCE:
        return known("none", f"{architecture} has no window layers")
    return unknown(f"whether {architecture} has a window, and hands it on whole, was not read")


FACTS: Makers = {"window of the runner": _window}
