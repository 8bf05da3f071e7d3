"""What decides vllm.undrafted-hybrid-row alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import cached_states, mamba2_layers

_METHOD, _MODE = "speculative-config.method", "mamba-cache-mode"


def _mamba2(it: Deployment) -> Fact:
    """Up to 0.16.0 the layers verify no drafts, and 0.17 and 0.18 end in steps without any."""
    if it.release is not None and not it.since("0.19.0"):
        return known(OFF, f"vLLM {it.release} runs no steps without drafts with Mamba2")
    return mamba2_layers(it)


def _trimmed(it: Deployment) -> Fact:
    """Whether a step may lose its drafts after it was scheduled ahead."""
    method = it.option(_METHOD, "none")
    trimmed = tuple(ON if str(value).lower() == "ngram_gpu" else OFF for value in method.values)
    return Fact(trimmed, f"{method.why} {method.values[0]}" if method.values else method.why)


def _each_block(it: Deployment) -> Fact:
    """Whether Mamba2 leaves a state in each block: up to 0.27 the model decides where nobody has asked."""
    for fact in (mamba2_layers(it), cached_states(it)):
        if fact.values != (ON,):
            return fact
    if it.given(_MODE):
        mode = it.option(_MODE)
        return known(ON if mode.values == ("all",) else OFF, f"{mode.why} {mode.values[0]}")
    return known(OFF, f"no --{_MODE}") if it.since("0.28.0") else Fact((ON, OFF), f"the model decides without --{_MODE}")


FACTS: Makers = {
    "Mamba2 layers that verify drafts": _mamba2,
    "drafts trimmed behind the scheduler": _trimmed,
    "Mamba2 states in each block": _each_block,
}
