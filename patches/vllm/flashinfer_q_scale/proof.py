"""Proof of vllm.flashinfer-q-scale: a layer loads a scale of queries, then attends with queries that were not divided by it.

Real: the config of a compressed-tensors checkpoint; the layer, its parameters, their loaders and the method that processes
them; FlashInfer's backend: its builder, which says which queries become FP8, its update of the cache and its `forward`, which
makes them FP8. Emulated (`lab/vllm/calibrated.py`): FlashInfer's wrappers, which multiply by what they are handed, the
operator that writes the cache, and the other rank of two, which holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, observe, replaced

_FLASHINFER = "vllm.v1.attention.backends.flashinfer"

_KEYS_VALUES = {"k_scale": 0.25, "v_scale": 2.0}
_SCALES = {"q_scale": 0.5, **_KEYS_VALUES}
_ADA, _HOPPER, _SM120 = (8, 9), (9, 0), (12, 0)
_KEEPS: dict[str, Any] = {"attention": {"disable_flashinfer_q_quantization": True}}
#: tokens in the cache, and new ones, of each request
_DECODES, _PREFILLS, _BOTH = ((20, 3), (1, 1)), ((20, 0), (5, 9)), ((20, 3, 6), (1, 1, 5))
_PAGE = 64


class Proof(proof.Proof):
    modules = (_FLASHINFER,)

    def prepare(self) -> None:
        code = code_of(self.engine[_FLASHINFER].FlashInferImpl.forward)
        if not any(isinstance(one, tuple) and "q_scale" in one for one in code.co_consts):
            raise NoSuchPath("FlashInfer's wrappers are told no scale of queries")

    def scenario(self, seed: int) -> Iterator[Observation]:
        yield from self._steps(seed, _SCALES, (_DECODES, _PREFILLS, _BOTH), capability=_ADA)
        yield from self._steps(seed, _SCALES, (_DECODES, _PREFILLS), capability=_HOPPER, **_KEEPS)
        yield from self._steps(seed, _SCALES, (_DECODES,), capability=_HOPPER)  # no cubins: from XQA to the wrapper
        yield from self._steps(seed, _SCALES, (_DECODES,), capability=_ADA, ranks=2)
        if hasattr(self.engine[_FLASHINFER], "BatchAttentionWithAttentionSinkWrapper"):
            yield from self._steps(seed, _SCALES, (_PREFILLS,), capability=_SM120, trtllm="decodes", sinks=True)

    def control(self, seed: int) -> Iterator[Observation]:
        """Queries of FP8, which were divided by it; a checkpoint that has none."""
        yield from self._steps(seed, _SCALES, (_PREFILLS,), capability=_HOPPER)
        yield from self._steps(seed, _KEYS_VALUES, (_DECODES, _PREFILLS), capability=_ADA)

    def _steps(
        self, seed: int, scales: dict[str, float], batches: Any, *, ranks: int = 1, sinks: bool = False, **gpu: Any
    ) -> Iterator[Observation]:
        """Of each batch, the layer's output against attention of what was quantised without loss."""
        import torch

        from attnfix.patches.lab.vllm.calibrated import FLASHINFER, SCHEME, CalibratedWorker, running
        from attnfix.patches.lab.vllm.construction import DENSE

        shared: dict[str, Any] = {"layout": "HND", "page_size": _PAGE}
        if ranks > 1:  # all tokens lie on this one
            shared |= {"model": DENSE | {"num_key_value_heads": 1}, "tp": ranks, "dcp": ranks, "interleave": _PAGE}
            shared["dcp_group"] = _BesideNothing(ranks)
        with running(), CalibratedWorker(FLASHINFER, scheme=SCHEME, kv_cache_dtype="fp8", **shared, **gpu) as worker:
            more: dict[str, Any] = {"sinks": torch.linspace(-1, 3, 8)} if sinks else {}
            layer = worker.loaded(scales, **more)
            if ranks > 1:
                layer.impl.dcp_combine = lambda out, lse, group: out[:, : layer.num_heads]
            for context, new in batches:
                yield observe(*worker.step(layer, context, new, seed=seed, exact=True))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.Told.run_told

        def as_it_was(told: Any, query: Any, *args: Any, **options: Any) -> Any:
            return told._told.run(query, *args, **options)

        def but_prefills(told: Any, query: Any, *args: Any, **options: Any) -> Any:
            return (as_it_was if len(query) > 2 else real)(told, query, *args, **options)

        def keys_too(told: Any, query: Any, *args: Any, **options: Any) -> Any:
            return real(told, query, *args, **{**options, "k_scale": 1.0})

        return {
            "the correction does nothing": replaced(wrap.Told, "run_told", as_it_was),
            "prefills keep the scale": replaced(wrap.Told, "run_told", but_prefills),
            "keys lose their scale": replaced(wrap.Told, "run_told", keys_too),
        }


class _BesideNothing:
    """The group of ranks as the first sees it: queries of the others, which hold no tokens, are there and no matter."""

    def __init__(self, size: int):
        self.world_size, self.rank_in_group = size, 0

    def all_gather(self, query: Any, dim: int) -> Any:
        import torch

        return torch.cat([query] * self.world_size, dim)
