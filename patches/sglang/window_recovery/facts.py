"""What decides sglang.window-recovery alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known
from attnfix.compat.doctor.deployment import Deployment, Makers

_OTHERS = "disable-radix-cache", "enable-hierarchical-cache", "radix-cache-backend"
_TREE = "SGLANG_ENABLE_UNIFIED_RADIX_TREE"


def _own_tree(it: Deployment) -> Fact:
    """Whether cached prefixes are in the radix cache of window models alone."""
    if named := next(filter(it.given, _OTHERS), None):
        return known(OFF, f"--{named}")
    if it.option("disaggregation-mode", "null").values == ("decode",):
        return known(OFF, "--disaggregation-mode decode")
    if it.truth(_TREE):
        return known(OFF, f"${_TREE}")
    return known(ON, "no other is named")


FACTS: Makers = {"radix cache for window layers alone": _own_tree}
