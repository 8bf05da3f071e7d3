"""Proof of vllm.skipped-layer-scales: a layer that is left unquantised loads calibrated scales, then attends.

Real: the config of a compressed-tensors checkpoint; the layer, its parameters, their loaders and the method that processes
them; FlashInfer's backend: its builder, its update of the cache and its `forward`. Emulated (`lab/vllm/calibrated.py`):
FlashInfer's wrappers, which multiply by what they are handed, and the operator that writes the cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, observe, replaced

_COMPRESSED = "vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors"
_FLASHINFER = "vllm.v1.attention.backends.flashinfer"

_SCALES = {"q_scale": 0.7, "k_scale": 0.3, "v_scale": 1.7}  # no powers of two
_KEYS_VALUES = {"k_scale": 0.25, "v_scale": 2.0}  # a checkpoint's, mostly; then queries have 1
_SKIPPED, _QUANTISED = 0, 1  # layers
#: tokens in the cache, and new ones, of each request
_DECODES, _PREFILLS = ((20, 3), (1, 1)), ((20, 0), (5, 9))


class Proof(proof.Proof):
    modules = (_COMPRESSED, _FLASHINFER)

    def prepare(self) -> None:
        method = self.engine[_COMPRESSED].CompressedTensorsKVCacheMethod
        own = vars(method).get("process_weights_after_loading")
        if own is None or "_k_scale_float" not in code_of(own).co_names:
            raise NoSuchPath("loading leaves the numbers at 1 that FlashInfer is handed")

    def scenario(self, seed: int) -> Iterator[Observation]:
        for scales in _KEYS_VALUES, _SCALES:
            yield from self._steps(seed, _SKIPPED, scales)

    def control(self, seed: int) -> Iterator[Observation]:
        """A checkpoint that was not calibrated; the next layer, whose cache is of FP8, divided by its scales."""
        yield from self._steps(seed, _SKIPPED, {})
        yield from self._steps(seed, _QUANTISED, _KEYS_VALUES)

    def _steps(self, seed: int, index: int, scales: dict[str, float]) -> Iterator[Observation]:
        """Of decodes and prefills, the layer's output against attention of what nothing was quantised of."""
        from attnfix.patches.lab.vllm.calibrated import FLASHINFER, SCHEME, CalibratedWorker, running

        skip = [str(_SKIPPED)]
        with running(), CalibratedWorker(FLASHINFER, scheme=SCHEME, skip_layers=skip, layout="HND") as worker:
            layer = worker.loaded(scales, index)
            for context, new in _DECODES, _PREFILLS:
                yield observe(*worker.step(layer, context, new, seed=seed, exact=index == _QUANTISED))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "LOADED", ()),
            "values keep their scale": replaced(wrap, "LOADED", ("k_scale", "q_scale")),
            "keys keep their scale": replaced(wrap, "LOADED", ("v_scale", "q_scale")),
        }
