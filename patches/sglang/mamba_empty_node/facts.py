"""What decides sglang.mamba-empty-node alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, switch
from attnfix.compat.doctor.gpus import NVIDIA
from attnfix.compat.doctor.sglang import BACKENDS

#: Backends that raise the size of a page, and the smallest that they take (ServerArgs, 0.5.14-0.5.15.post1)
_PAGES = {"trtllm_mha": 16, "trtllm_mla": 32, "tokenspeed_mla": 32, "cutedsl_mla": 32, "flashmla": 64, "cutlass_mla": 128}
#: Those of them that do so in decode alone
_DECODE = ("flashmla", "cutlass_mla")
#: Makers and generations of GPUs for which the engine chooses no size
_PLAIN = {(NVIDIA, 8), (NVIDIA, 9)}
_OTHER_TREES = ("SGLANG_ENABLE_UNIFIED_RADIX_TREE", "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE")


def _page(it: Deployment) -> Fact:
    for option in filter(it.given, BACKENDS):
        name = next(iter(it.option(option).values), None)
        if name == "fa4":
            return unknown(f"--{option} fa4 takes pages of 128 tokens on some GPUs")
        if name in _PAGES and not (option == "prefill-attention-backend" and name in _DECODE):
            return known(_PAGES[str(name)], f"or more with --{option} {name}")
    if not it.given("attention-backend") and (it.gpu is None or (it.gpu.maker, it.gpu.generation) not in _PLAIN):
        return unknown("the pages that the engine chooses here were not read; name --attention-backend")
    return it.number("page-size", 1)


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


FACTS: Makers = {"tokens of a page": _page, "radix cache for recurrent states alone": _own_tree}
