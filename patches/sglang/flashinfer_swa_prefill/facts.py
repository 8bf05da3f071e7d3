"""What decides sglang.flashinfer-swa-prefill alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, either

_VARIABLE = "SGLANG_FLASHINFER_USE_PAGED"


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


FACTS: Makers = {"prefill with the window": _with_the_window}
