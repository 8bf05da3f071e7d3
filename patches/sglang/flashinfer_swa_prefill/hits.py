"""What decides sglang.flashinfer-swa-prefill alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers, either
from attnfix.compat.doctor.sglang import GEMMA, MLA_SINCE, PLAIN

_VARIABLE = "SGLANG_FLASHINFER_USE_PAGED"


def _window_layers(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture() or ""
    if architecture in GEMMA:
        return known(ON, f"architecture {architecture}")
    if architecture in PLAIN or architecture in MLA_SINCE:
        return known(OFF, f"{architecture} has no window layers")
    return unknown(f"whether {architecture} has window layers on FlashInfer was not read")


def _with_the_window(it: Deployment) -> Fact:
    """Whether FlashInfer's prefill keeps to the window: from 0.5.16 on its paged-only mode does."""
    if it.release is None:
        return unknown("it depends on the release")
    if not it.since("0.5.16"):
        return known("missed", f"sglang {it.release} in either mode")
    if it.truth(_VARIABLE):
        return known("right", f"{_VARIABLE}={it.variables()[_VARIABLE]}")
    if it.launch is None and it.truth(_VARIABLE) is None:
        return unknown(f"needs the launch command; {_VARIABLE} is not set here")
    names = ["enable-deterministic-inference"]
    if it.architecture() in (None, "Gemma3ForConditionalGeneration"):
        names.append("enable-multimodal")
    paged = either(*(it.option(name, OFF) for name in names))
    if paged.values == (OFF,):
        return known("missed", f"no {_VARIABLE}=1, {paged.why}")
    return Fact(tuple("right" if value == ON else "missed" for value in paged.values), paged.why)


FACTS: Makers = {
    "sliding-window layers": _window_layers,
    "prefill with the window": _with_the_window,
}
