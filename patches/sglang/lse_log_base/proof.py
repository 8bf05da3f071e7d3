"""Proof of sglang.lse-log-base: new tokens merged with chunks of a cached prefix, through each backend that does so.

What is real and what is emulated stands in `patches/lab/sglang/chunked_prefix.py`. The prefixes fill every chunk for every
request: rows without KV are another bug.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, observe, replaced
from attnfix.patches.lab.sglang.chunked_prefix import CHUNK, FLASHINFER, TRTLLM, ChunkedPrefix
from attnfix.patches.shared import lse_base

_PREFIX, _NEW = [37, 33, 35, 48], [23, 12, 24, 15]


class Proof(ChunkedPrefix):
    def scenario(self, seed: int) -> Observation:
        return self._run(seed, 2, "bfloat16")

    def control(self, seed: int) -> Observation:
        """Other kernels, those of float16, whose LSE is natural: as later FlashInfer returns on request."""
        return self._run(seed, math.e, "float16")

    def _run(self, seed: int, base: float, dtype: str) -> Observation:
        self.use(base)
        outputs = partial(self.outputs, seed, _PREFIX, _NEW, dtype=dtype)
        seen = [observe(*outputs(FLASHINFER))]
        if self.has_trtllm_prefill():
            seen.append(observe(*outputs(TRTLLM)))
            seen.append(observe(*outputs(TRTLLM, fallback=True)))  # from one backend to the other: converted once
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        real = lse_base.scale

        def one_head_missed(lse: Any) -> None:
            kept = lse[:, -1].clone()
            real(lse)
            lse[:, -1] = kept

        def only(prefix: bool) -> Any:
            """The conversion of one part of the attention alone: the new tokens come first in every forward pass."""
            calls = iter(range(1 << 30))
            chunks = -(-max(_PREFIX) // CHUNK)
            return replaced(lse_base, "scale", lambda lse: real(lse) if (next(calls) % (chunks + 1) > 0) == prefix else None)

        return {
            "the correction does nothing": replaced(lse_base, "scale", lambda lse: None),
            "from base e to base 2": replaced(lse_base, "scale", lambda lse: lse.div_(math.log(2))),
            "converted twice": replaced(lse_base, "scale", lambda lse: (real(lse), real(lse))),
            "one head is missed": replaced(lse_base, "scale", one_head_missed),
            "the prefix alone is converted": only(prefix=True),
            "the new tokens alone are converted": only(prefix=False),
        }
