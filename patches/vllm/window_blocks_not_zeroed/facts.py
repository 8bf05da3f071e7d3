"""What decides vllm.window-blocks-not-zeroed alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import ON, Fact, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import sliding_window_layers

#: Values of --speculative-config.method whose drafter has layers of attention of its own, as its config.json says
_WITH_LAYERS = ("eagle", "eagle3", "dflash", "dspark", "draft_model")


def _windows(it: Deployment) -> Fact:
    """Whether layers of the model, or of its drafter, have a sliding window."""
    fact, method = sliding_window_layers(it), it.option("speculative-config.method", "none")
    if fact.values == (ON,) or not (it.given("speculative-config") and (not method.values or method.values[0] in _WITH_LAYERS)):
        return fact
    return unknown("whether the drafter's config.json has a sliding window")


FACTS: Makers = {"windows in the model or its drafter": _windows}
