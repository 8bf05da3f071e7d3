"""What decides sglang.future-slots alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch
from attnfix.compat.doctor.sglang import FACTS as COMMON

#: Requests that run at once: with drafts; without, at least so many, unless recurrent states bound them
_WITH_DRAFTS, _AT_LEAST = 48, 2048


def _overlap(it: Deployment) -> Fact:
    """Whether steps overlap on a server that reads prompts and decodes."""
    stages, mode = it.number("pp-size", 1), it.option("disaggregation-mode", "null")
    if stages.values and stages.values != (1,):
        return known(OFF, f"{stages.why} {stages.values[0]}")
    if mode.values and mode.values != ("null",):
        return known(OFF, f"{mode.why}: prompts and decoding are on servers of their own")
    overlaps = switch(it.option("disable-overlap-schedule", OFF), OFF)
    return overlaps if (stages.values and mode.values) or overlaps.values == (OFF,) else stages if mode.values else mode


def _running(it: Deployment) -> Fact:
    """Requests that may run at once, on all groups of ranks together."""
    if it.given("speculative-algorithm") and it.absent("max-running-requests"):
        return known(_WITH_DRAFTS, f"{_WITH_DRAFTS} requests run at once with drafts")
    return it.number("max-running-requests")


def _many_chunks(it: Deployment) -> Fact:
    """Whether the KV cache has room for more parts of prompts than requests run at once, as the fix counts them."""
    chunk, tokens, running = it.number("chunked-prefill-size"), it.number("max-total-tokens"), _running(it)
    groups = it.number("dp-size", 1) if it.given("enable-dp-attention") else known(1, "")
    if chunk.values and int(chunk.values[0]) <= 0:
        return known(OFF, f"{chunk.why} {chunk.values[0]}")
    if not (running.values or chunk.values) and it.absent("max-running-requests") and it.absent("chunked-prefill-size"):
        recurrent = COMMON["recurrent layers"](it)
        if recurrent.values == (OFF,):
            return known(OFF, f"at least {_AT_LEAST} requests run at once by default, and a chunk has at least as many tokens")
    if not (running.values and chunk.values and tokens.values and groups.values):
        return unknown("needs --max-running-requests, --chunked-prefill-size and --max-total-tokens")
    parts = 2 * int(tokens.values[0]) * int(groups.values[0]) // int(chunk.values[0])
    why = f"up to {parts} parts of prompts, {running.why} {running.values[0]}"
    many = parts > int(running.values[0]) // int(groups.values[0])
    if many and it.given("enable-mixed-chunk"):
        return unknown(f"{why}; --enable-mixed-chunk lets others decode meanwhile, unless they ask for log-probabilities")
    return known(ON if many else OFF, why)


FACTS: Makers = {"overlap schedule": _overlap, "more chunks than running requests": _many_chunks}
