"""What decides vllm.draft-rotary-table alone."""

from __future__ import annotations

from pathlib import Path

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers, read_config

_METHOD, _DRAFTER, _LENGTH = "speculative-config.method", "speculative-config.model", "max_position_embeddings"


def _own_length(it: Deployment) -> Fact:
    """Whether the engine lets drafters of this method keep the length of their own config.json."""
    method = it.option(_METHOD, "")
    if not method.values:
        return method
    name, why = str(method.values[0]).lower(), f"{method.why} {method.values[0]}"
    if not name:
        return Fact((ON, OFF), f"the engine finds the method of --{_DRAFTER} out") if it.given(_DRAFTER) else known(OFF, why)
    if name in ("dflash", "dspark"):
        return known(ON, why)
    if name in ("eagle", "eagle3"):
        if it.release is None:
            return Fact((ON, OFF), f"{why}, up to 0.26.0")
        return known(OFF if it.since("0.27.0") else ON, f"{why} in vLLM {it.release}")
    if name.endswith("mtp") and it.given("hf-overrides"):
        return Fact((ON, OFF), f"{why}, where --hf-overrides lengthens the target")
    return known(OFF, why)


def _shorter(it: Deployment) -> Fact:
    """Whether the drafter's own length is below the server's."""
    if it.config is None:
        return unknown(NO_CONFIG)
    server, drafter = it.number("max-model-len", it.text_config().get(_LENGTH)), it.option(_DRAFTER, "")
    if not (server.values and drafter.values):
        return drafter if server.values else server
    try:
        own = read_config(Path(str(drafter.values[0])))[_LENGTH]
    except (OSError, ValueError, LookupError):
        return Fact((ON, OFF), f"needs the drafter's config.json, which --{_DRAFTER} does not lead to")
    if not (isinstance(own, int) and isinstance(server.values[0], int) and server.values[0] > 0):  # -1: what memory holds
        return Fact((ON, OFF), f"the drafter's {own}, {server.why} {server.values[0]}")
    return known(ON if own < server.values[0] else OFF, f"the drafter's {_LENGTH} {own}, the server's {server.values[0]}")


FACTS: Makers = {"drafters with a length of their own": _own_length, "a drafter shorter than the server": _shorter}
