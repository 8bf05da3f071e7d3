"""What decides vllm.partial-hit-assert alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import BLOCKS_OF_THE_TARGET, sliding_window_layers


def _lookups(it: Deployment) -> Fact:
    """Whether layers with a window are asked for prefixes that end within a block of theirs."""
    if it.config is None:
        return unknown(NO_CONFIG)
    windows, method = sliding_window_layers(it), it.option("speculative-config.method", "none")
    if windows.values == (ON,):
        if it.given("prefix-match-unit"):
            return known(ON, f"--prefix-match-unit beside {windows.why}")
        return unknown(f"{windows.why}: their blocks may be no multiple of a hash's tokens")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none" and it.given("speculative-config"):
        return unknown("--speculative-config without a method: the drafter's config.json decides")
    if not name.endswith(BLOCKS_OF_THE_TARGET):
        return unknown(f"{method.why} {name}: a drafter with a sliding window may refuse them")
    return known(OFF, "no layers with a window are known of it")


FACTS: Makers = {"lookups that a window refuses": _lookups}
