"""What decides sglang.mamba-empty-node alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.sglang import BACKENDS

#: Backends that choose the size of a page, and the smallest that they choose
_PAGES = {"trtllm_mha": 16, "fa4": 128}
_UNIFIED = "SGLANG_ENABLE_UNIFIED_RADIX_TREE"


def _page(it: Deployment) -> Fact:
    for option in filter(it.given, BACKENDS):
        backend = it.option(option)
        if backend.values and (size := _PAGES.get(str(backend.values[0]))):
            return known(size, f"or more with {backend.why} {backend.values[0]}")
    size = it.number("page-size", 1)
    if it.given("page-size") or not size.values:
        return size
    if it.gpu is None or (it.gpu.maker, it.gpu.generation) not in {(NVIDIA, 8), (NVIDIA, 9)}:
        return unknown("whether the engine chooses pages of several tokens here was not read; name --page-size")
    return size


def _own_tree(it: Deployment) -> Fact:
    if it.truth(_UNIFIED):
        return known(OFF, f"${_UNIFIED}")
    if it.given("radix-cache-backend"):
        return unknown("--radix-cache-backend may bring another one")
    return switch(it.option("enable-hierarchical-cache", OFF), OFF)


FACTS: Makers = {"tokens of a page": _page, "radix cache for recurrent states alone": _own_tree}
