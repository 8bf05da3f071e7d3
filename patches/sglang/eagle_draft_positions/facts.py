"""What decides sglang.eagle-draft-positions alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.sglang import COMMON, LAYERED_DRAFTS


def _one_layer_again(it: Deployment) -> Fact:
    """Whether each draft comes from the layer of the one before it, a position later."""
    if it.given("enable-multi-layer-eagle"):
        return known(OFF, "--enable-multi-layer-eagle")
    architecture = it.architecture()
    if architecture in LAYERED_DRAFTS and "EAGLE" in COMMON["speculative algorithm"](it).values:
        return known(OFF, f"{architecture} drafts with several layers")
    return known(ON, "no drafts of several layers")


FACTS: Makers = {"draft steps of one layer": _one_layer_again}
