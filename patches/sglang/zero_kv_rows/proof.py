"""Proof of sglang.zero-kv-rows: chunked prefix of four requests with unequal cached lengths, through the TRT-LLM backend.

What is real and what is emulated stands in `patches/sglang/chunked_prefix.py`.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.scenario import NoSuchPath, Observation, fixup_sabotages, observe
from attnfix.patches.sglang import chunked_prefix
from attnfix.patches.sglang.chunked_prefix import TRTLLM

MODULES, MAY_LACK = chunked_prefix.MODULES, chunked_prefix.MAY_LACK
KERNEL = "emulated"
sabotages = fixup_sabotages

_NEW = [3, 2, 4, 5]
_UNEQUAL = [5, 37, 0, 20]  # every chunk but the first has several empty requests, and one request has no prefix at all
_EQUAL = [37, 33, 35, 48]  # three full chunks for everyone: the bug is not touched


def prepare(modules: dict[str, Any]) -> None:
    chunked_prefix.prepare(modules)
    if not chunked_prefix.has_trtllm_prefill():
        raise NoSuchPath("the TRT-LLM MLA backend has no prefill of its own")
    # The kernel returns base-2 LSE, which is another bug: the engine gets the base it merges with
    chunked_prefix.use(math.e)


def scenario(seed: int) -> Observation:
    return observe(*chunked_prefix.outputs(seed, _UNEQUAL, _NEW, TRTLLM))


def control(seed: int) -> Observation:
    return observe(*chunked_prefix.outputs(seed, _EQUAL, _NEW, TRTLLM))
