"""What decides sglang.mamba-empty-node alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch

_OTHER_TREES = ("SGLANG_ENABLE_UNIFIED_RADIX_TREE", "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE")


def _own_tree(it: Deployment) -> Fact:
    if named := next(filter(it.truth, _OTHER_TREES), None):
        return known(OFF, f"${named}")
    if it.option("disaggregation-mode", "null").values == ("decode",):
        if it.given("disaggregation-decode-enable-radix-cache"):
            return unknown("the radix cache of a decode server was not read")
        return known(OFF, "--disaggregation-mode decode")
    if it.given("radix-cache-backend"):
        return unknown("--radix-cache-backend may bring another one")
    return switch(it.option("enable-hierarchical-cache", OFF), OFF)


FACTS: Makers = {"radix cache for recurrent states alone": _own_tree}
