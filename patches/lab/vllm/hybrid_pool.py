"""A pool of blocks that recurrent states and attention share, on Model Runner V1: 0.10.2-0.33.0.

As in `shared_pool`. Real, too: what a layer with a state keeps in the cache, and its backend. Emulated: the rest of that layer,
which fills its request's block in each step.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from typing import Any

from .models import NEMOTRON_H, own_classes
from .scheduling import SCHEDULER, case
from .shared_pool import RUNNERS, WINDOW, Attending, Pool, SharedPool, talk

__all__ = ["ALL_ATTENTION", "HybridPool", "case", "talk"]

#: Mamba2 in two layers of four, whose state fills most of a block, keys and values alike
HYBRID = {**NEMOTRON_H, "mamba_num_heads": 8, "mamba_head_dim": 24, "mamba_ssm_cache_dtype": "auto"}
ALL_ATTENTION = {**HYBRID, "hybrid_override_pattern": "****"}
_MIXER = "vllm.model_executor.layers.mamba.mamba_mixer2"


class States(Pool):
    """states: the dtype of the recurrent states, or "auto" for that of the model. windows: layers that have one."""

    def __init__(self, model: dict[str, Any] = HYBRID, *, states: str = "auto", windows: Collection[int] = (), **more: Any):
        self._windows = windows
        more["scheduler"] = {"enable_chunked_prefill": True}  # else not up to 0.10.2
        super().__init__(
            model, caching=False, cache={"mamba_ssm_cache_dtype": states}, **{"blocks": 20, "graphs": "NONE", **more}
        )
        if getattr(self.config.compilation_config, "max_capture_size", 0) is None:  # up to 0.10.2 set on a GPU alone
            self.config._set_cudagraph_sizes()

    def _add_layers(self) -> None:
        for at, kind in enumerate(self.model["hybrid_override_pattern"]):
            if kind == "*":
                self.worker.layer(at, per_layer_sliding_window=WINDOW if at in self._windows else None)
            else:
                self.config.compilation_config.static_forward_context[f"model.layers.{at}.mixer"] = self._with_state()
        platform: Any = import_module("vllm.platforms").current_platform
        if hasattr(type(platform), "update_block_size_for_backend"):  # from 0.18.0, once the layers are there
            platform.update_block_size_for_backend(self.config)

    def _with_state(self) -> Any:
        import torch

        own, *_ = own_classes(self.model).values()
        answers = dict(
            get_state_shape=lambda _: own.get_mamba_state_shape_from_config(self.config),
            get_state_dtype=lambda _: own.get_mamba_state_dtype_from_config(self.config),
            use_replayssm=False,  # from 0.30.0
        )  # fmt: skip
        layer: Any = object.__new__(type("Layer", (import_module(_MIXER).MambaMixer2,), answers))
        torch.nn.Module.__init__(layer)
        return layer


class Recurring(Attending):
    def __init__(self, engine: Any, seed: int):
        super().__init__(engine, seed)
        for group in engine.kv_cache_config.kv_cache_groups:
            self._fill(group, slice(None))  # all blocks were a state's at some time

    def _recur(self, name: str) -> None:
        for at, group in enumerate(self.engine.kv_cache_config.kv_cache_groups):
            self._fill(group, self.engine.scheduler.kv_cache_manager.get_block_ids(name)[at])

    def _fill(self, group: Any, blocks: Any) -> None:
        """A state is some numbers in its dtype."""
        import torch

        if type(group.kv_cache_spec).__name__ != "MambaSpec":
            return
        make = torch.Generator().manual_seed(self.draw.randrange(1 << 30))
        for name in group.layer_names:
            kept = self.engine.config.compilation_config.static_forward_context[name].kv_cache
            for part in kept[0] if len(kept) == 1 else kept:  # up to 0.18, of a pipeline's part
                part[blocks] = torch.randn(part[blocks].shape, generator=make).to(part.dtype)


class HybridPool(SharedPool):
    """Base of the proofs."""

    kind, pool = Recurring, States
    modules: tuple[str, ...] = (RUNNERS["V1"], SCHEDULER)
