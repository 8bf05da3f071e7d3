"""Proof of vllm.lse-log-base: new tokens merged with context, through each kernel whose LSE is merged.

What is real and what is emulated stands in `patches/lab/vllm/mla_prefill.py` and `dcp_prefill.py`. In MLA prefill the
context fills every chunk for every request: rows without KV are another bug. Under decode context parallelism both layouts of
the cache.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches.lab.proof import Observation, combine, observe, replaced
from attnfix.patches.lab.vllm import dcp_prefill
from attnfix.patches.lab.vllm.mla_prefill import Batch, MlaPrefill
from attnfix.patches.shared import lse_base

_CONTEXT, _NEW = (70, 65, 79, 80), (23, 12, 24, 15)
# One context lies on the first rank alone. Few tokens: Triton's interpreter combines the ranks, token by token.
_DCP_CONTEXT, _DCP_NEW = (37, 1, 33, 48), (5, 2, 6, 3)


def _worst(out: Any, reference: Any) -> Observation:
    return combine(*(observe(*token) for token in zip(out, reference)))


class Proof(MlaPrefill):
    modules = may_lack = (*MlaPrefill.modules, dcp_prefill.BACKEND)
    measure = "relative error of the worst token"

    def prepare(self) -> None:
        self.prepare_any()
        self.has_dcp = dcp_prefill.prepare(self.engine.get(dcp_prefill.BACKEND))

    def scenario(self, seed: int) -> Observation:
        return combine(*self._mla(seed, _CONTEXT, 2, "bfloat16"), *self._dcp(seed, _DCP_CONTEXT, 2, "bfloat16"))

    def control(self, seed: int) -> Observation:
        """Other kernels, those of float16, whose LSE has the base that the release merges with.

        No context where that is not enough: FlashInfer's LSE is misread up to 0.10.2, and the ranks combine in base 2 from
        0.12.0.
        """
        none, base = (0,) * len(_NEW), math.e
        if self.converts():
            return combine(*self._mla(seed, _CONTEXT, 2, "float16"), *self._dcp(seed, _DCP_CONTEXT, 2, "float16"))
        context = none if self.returns_tokens_first() else _CONTEXT
        return combine(*self._mla(seed, context, base, "float16"), *self._dcp(seed, none, base, "float16"))

    def _mla(self, seed: int, context: tuple[int, ...], base: float, dtype: str) -> list[Observation]:
        self.use(lse_base=base)
        backends = ("fi", "trtllm_ragged") if self.has_ragged() else ("fi",)
        return [_worst(*self.outputs(seed, Batch(context, _NEW), backend, dtype)) for backend in backends]

    def _dcp(self, seed: int, context: tuple[int, ...], base: float, dtype: str) -> list[Observation]:
        if not self.has_dcp:
            return []
        backend = self.engine[dcp_prefill.BACKEND]
        dcp_prefill.use(backend, base)
        return [_worst(*dcp_prefill.outputs(backend, seed, context, _DCP_NEW, layout, dtype)) for layout in ("NHD", "HND")]

    def sabotages(self) -> dict[str, Any]:
        real, convert = lse_base.scale, lse_base.to_natural

        def one_row_missed(lse: Any) -> None:
            kept = lse[-1].clone()  # a head, under decode context parallelism a token
            real(lse)
            lse[-1] = kept

        def only(part: str) -> Any:
            def some(call: Any, path: tuple, *args: Any) -> None:
                if part in path:
                    convert(call, path, *args)

            return replaced(lse_base, "to_natural", some)

        return {
            "the correction does nothing": replaced(lse_base, "scale", lambda lse: None),
            "from base e to base 2": replaced(lse_base, "scale", lambda lse: lse.div_(math.log(2))),
            "converted twice": replaced(lse_base, "scale", lambda lse: (real(lse), real(lse))),
            "one row is missed": replaced(lse_base, "scale", one_row_missed),
            "the context alone is converted": only("context"),
            "the new tokens alone are converted": only("new tokens"),
        }
