"""Proof of vllm.lse-log-base: new tokens merged with context, through each kernel whose LSE is merged.

What is real and what is emulated stands in `patches/vllm/mla_prefill.py` and `dcp_prefill.py`. In MLA prefill the context fills
every chunk for every request: rows without KV are another bug. Under decode context parallelism both layouts of the cache.
"""

from __future__ import annotations

import math
from typing import Any

from attnfix.patches import lse_base
from attnfix.patches.scenario import Observation, combine, observe, replaced
from attnfix.patches.vllm import dcp_prefill, mla_prefill
from attnfix.patches.vllm.mla_prefill import Batch

MODULES = MAY_LACK = (*mla_prefill.MODULES, dcp_prefill.BACKEND)
KERNEL = "emulated"
MEASURE = "relative error of the worst token"

_CONTEXT, _NEW = (70, 65, 79, 80), (23, 12, 24, 15)
# One context lies on the first rank alone. Few tokens: Triton's interpreter combines the ranks, token by token.
_DCP_CONTEXT, _DCP_NEW = (37, 1, 33, 48), (5, 2, 6, 3)
_has_dcp = False


def prepare(modules: dict[str, Any]) -> None:
    global _has_dcp
    mla_prefill.prepare_any(modules)
    _has_dcp = dcp_prefill.prepare(modules)


def scenario(seed: int) -> Observation:
    return combine(*_mla(seed, _CONTEXT, 2, "bfloat16"), *_dcp(seed, _DCP_CONTEXT, 2, "bfloat16"))


def control(seed: int) -> Observation:
    """Other kernels, those of float16, whose LSE has the base that the release merges with.

    No context where that is not enough: FlashInfer's LSE is misread up to 0.10.2, and the ranks combine in base 2 from 0.12.0.
    """
    none, base = (0,) * len(_NEW), math.e
    if mla_prefill.converts():
        return combine(*_mla(seed, _CONTEXT, 2, "float16"), *_dcp(seed, _DCP_CONTEXT, 2, "float16"))
    context = none if mla_prefill.returns_tokens_first() else _CONTEXT
    return combine(*_mla(seed, context, base, "float16"), *_dcp(seed, none, base, "float16"))


def _mla(seed: int, context: tuple[int, ...], base: float, dtype: str) -> list[Observation]:
    mla_prefill.use(lse_base=base)
    backends = ("fi", "trtllm_ragged") if mla_prefill.has_ragged() else ("fi",)
    return [_worst(*mla_prefill.outputs(seed, Batch(context, _NEW), backend, dtype)) for backend in backends]


def _dcp(seed: int, context: tuple[int, ...], base: float, dtype: str) -> list[Observation]:
    if not _has_dcp:
        return []
    dcp_prefill.use(base)
    return [_worst(*dcp_prefill.outputs(seed, context, _DCP_NEW, layout, dtype)) for layout in ("NHD", "HND")]


def _worst(out: Any, reference: Any) -> Observation:
    return combine(*(observe(*token) for token in zip(out, reference)))


def sabotages() -> dict[str, Any]:
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
