"""Proof of sglang.zero-kv-rows: chunked prefix of four requests with unequal cached lengths, through the TRT-LLM backend.

What is real and what is emulated stands in `patches/lab/sglang/chunked_prefix.py`.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, fixup_sabotages, observe
from attnfix.patches.lab.sglang.chunked_prefix import TRTLLM, ChunkedPrefix

_NEW = [3, 2, 4, 5]
_UNEQUAL = [5, 37, 0, 20]  # every chunk but the first has several empty requests, and one request has no prefix at all
_EQUAL = [37, 33, 35, 48]  # three full chunks for everyone: the bug is not touched


class Proof(ChunkedPrefix):
    def prepare(self) -> None:
        super().prepare()
        if not self.has_trtllm_prefill():
            raise NoSuchPath("the TRT-LLM MLA backend has no prefill of its own")
        # The kernel returns base-2 LSE, which is another bug: the engine gets the base it merges with
        self.use(math.e)

    def scenario(self, seed: int) -> Observation:
        return observe(*self.outputs(seed, _UNEQUAL, _NEW, TRTLLM))

    def control(self, seed: int) -> Observation:
        return observe(*self.outputs(seed, _EQUAL, _NEW, TRTLLM))

    def sabotages(self) -> dict[str, Any]:
        return fixup_sabotages()
