"""What decides vllm.draft-rotary-table alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

_METHOD = "speculative-config.method"


def _own_length(it: Deployment) -> Fact:
    """Whether the engine lets drafters of this method keep the length of their own config.json."""
    method = it.option(_METHOD, "")
    if not method.values:
        return method
    name, why = str(method.values[0]).lower(), f"{method.why} {method.values[0]}"
    if not name:
        model = it.given("speculative-config.model")
        return Fact((ON, OFF), "the engine finds the method of --speculative-config.model out") if model else known(OFF, why)
    if name in ("dflash", "dspark"):
        return known(ON, why)
    if name in ("eagle", "eagle3"):
        if it.release is None:
            return Fact((ON, OFF), f"{why}, up to 0.26.0")
        return known(OFF if it.since("0.27.0") else ON, f"{why} in vLLM {it.release}")
    if name.endswith("mtp"):
        return (
            Fact((ON, OFF), f"{why}, where --hf-overrides lengthens the target")
            if it.given("hf-overrides")
            else known(OFF, why)
        )
    return known(OFF, why)


FACTS: Makers = {"drafters with a length of their own": _own_length}
