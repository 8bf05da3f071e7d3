"""Proof of vllm.dflash-aot-schedule: what a drafter's layers with a sliding window hand to FlashAttention 3.

Real: the config, the layers and the metadata builders by their constructors, `DFlashSpeculator.set_attn`, `build`, and the
layer's `forward`. Emulated: the kernel, which is right whatever it is given, and its scheduler. That the real one goes wrong
with such a schedule is what upstream's change says; it was not run.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.emulators import flash_attention as flash
from attnfix.patches.lab.proof import NoSuchPath, Observation, code_of, combine, observe, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import DENSE, Worker

_SPECULATOR, _FLASH = "vllm.v1.worker.gpu.spec_decode.dflash.speculator", "vllm.v1.attention.backends.flash_attn"
_CACHE = "vllm.v1.kv_cache_interface"
_WINDOW, _PAGE = 512, 16  # longer than the requests: the emulated kernel knows no window
_CONTEXT, _NEW = (40, 75, 9), (4, 4, 4)  # a block of drafts for each


class Proof(proof.Proof):
    modules = (_SPECULATOR, _FLASH, _CACHE)
    may_lack = (_SPECULATOR,)
    measure = "launches with a window and a schedule made ahead"

    def __init__(self) -> None:
        kernels.stand_in()  # before the backend binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        if _SPECULATOR not in self.engine:
            raise NoSuchPath("Model Runner V2 knows no DFlash")
        vars(kernels.found("vllm.v1.attention.backends.flash_attn"))["get_flash_attn_version"] = lambda *args, **kwargs: 3

    def scenario(self, seed: int) -> Observation:
        return self._drafted(seed, _WINDOW)

    def control(self, seed: int) -> Observation:
        """A drafter without a window keeps its schedule."""
        return self._drafted(seed, None)

    def _drafted(self, seed: int, window: int | None) -> Observation:
        """A step of the drafter's one layer, as beside a target of another backend: no other layer is FlashAttention's."""
        launches: list[str] = []
        worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", page_size=_PAGE, max_requests=16)
        with worker:
            layer = worker.layer(0, per_layer_sliding_window=window)
            speculator = self._speculator(worker, layer)
            builder = speculator.attn_groups[0][0].metadata_builders[0]
            batch = worker.batch(_CONTEXT, _NEW, causal=False)
            with self._kernels(launches):
                metadata = builder.build(0, batch)
                out = self._forward(worker, layer, metadata, int(batch.block_table_tensor.max()) + 1, seed)
        ahead = sum(launch == "window, schedule" for launch in launches)
        return combine(Observation(float(ahead), repr(launches)), Observation(0.0, observe(out, out.double() + 1).bits))

    def _speculator(self, worker: Worker, layer: Any) -> Any:
        """DFlash's, with what it asks itself while its attention is set up."""
        import torch

        cache, name = self.engine[_CACHE], worker.name_of(layer)
        config = cache.KVCacheConfig(
            num_blocks=64, kv_cache_tensors=[], kv_cache_groups=[cache.KVCacheGroupSpec([name], worker.spec(layer))]
        )
        speculator = object.__new__(self.engine[_SPECULATOR].DFlashSpeculator)
        vars(speculator).update(
            vllm_config=worker.config, device=torch.device("cpu"), draft_attn_layer_names={name}, max_num_tokens=64,
            requires_non_causal=True, model=SimpleNamespace(),
        )  # fmt: skip
        given = (None, config, SimpleNamespace(block_sizes=[_PAGE]), None, None)
        speculator.set_attn(*given[: _arguments(type(speculator).set_attn)])
        return speculator

    def _forward(self, worker: Worker, layer: Any, metadata: Any, pages: int, seed: int) -> Any:
        import torch

        draw = torch.Generator().manual_seed(seed)
        q = torch.randn(sum(_NEW), layer.num_heads, layer.head_size, generator=draw).bfloat16()
        cache = torch.randn(2, pages, _PAGE, layer.num_kv_heads, layer.head_size, generator=draw).bfloat16()
        out, new = torch.zeros_like(q), q.new_zeros(sum(_NEW), layer.num_kv_heads, layer.head_size)
        layer.impl.forward(layer, q, new, new, worker.laid_out(cache), metadata, output=out)
        return out

    def _kernels(self, launches: list[str]) -> ExitStack:
        def launched(*, window_size: Any, scheduler_metadata: Any, **launch: Any) -> Any:
            window = window_size is not None and tuple(window_size) != (-1, -1)
            launches.append(f"{'window' if window else 'no window'}, {'no ' * (scheduler_metadata is None)}schedule")
            return flash.flash_attn_varlen_func(scheduler_metadata=scheduler_metadata, **launch)

        stack, module = ExitStack(), self.engine[_FLASH]
        stack.enter_context(replaced(module, "flash_attn_varlen_func", launched))
        stack.enter_context(replaced(module, "get_scheduler_metadata", flash.get_scheduler_metadata))
        if hasattr(module, "reshape_and_cache_flash"):
            stack.enter_context(replaced(module, "reshape_and_cache_flash", lambda *args, **kwargs: None))
        return stack

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "no builder is found": replaced(wrap, "builders", lambda attn_groups: []),
            "no window is found": replaced(wrap, "has_window", lambda spec: False),
        }


def _arguments(method: Any) -> int:
    """How many the engine's method takes beside `self`."""
    return code_of(method).co_argcount - 1
