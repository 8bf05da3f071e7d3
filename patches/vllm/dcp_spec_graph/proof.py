"""Proof of vllm.dcp-spec-graph: the graphs that the runner asks for can be captured, and run what they are replayed for.

Real: the config, the layer and the metadata builder by their constructors, the V1 runner's choice of the mode of graphs (the V2
runner asks the same function of the config), and `build_for_cudagraph_capture`. FlashMLA's tile scheduler is emulated; no
kernel runs.
"""

from __future__ import annotations

import hashlib
from contextlib import ExitStack
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.emulators import flashmla
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.lab.vllm.construction import MLA, Alone, Worker

_RUNNER = "vllm.v1.worker.gpu_model_runner"
_FLASHMLA, _FLASH_ATTN = "mla.flashmla.FlashMLABackend", "mla.flashattn_mla.FlashAttnMLABackend"
_SIZES = 1, 2, 4  # requests of a graph


class Proof(proof.Proof):
    modules = (_RUNNER, "vllm.config")
    measure = "decode graphs that the runner asks for and the builder refuses"

    graphs = "FULL_AND_PIECEWISE"
    around = {"`--compilation-config.cudagraph_mode PIECEWISE`": {"graphs": "PIECEWISE"}}

    def __init__(self) -> None:
        kernels.stand_in()  # before the runner's module binds the kernels' names
        super().__init__()

    def prepare(self) -> None:
        if not hasattr(self.engine[_RUNNER].GPUModelRunner, "_check_and_update_cudagraph_mode"):
            raise NoSuchPath("full graphs of decodes and of speculation are not told apart")

    def scenario(self, seed: int) -> Observation:
        return self._captured(_FLASHMLA, dcp=2, drafts=3)

    def control(self, seed: int) -> Observation:
        """Without drafts, without DCP, and the mode of a backend that takes drafts as decodes under DCP."""
        return combine(
            self._captured(_FLASHMLA, dcp=2, drafts=0),
            self._captured(_FLASHMLA, dcp=1, drafts=3),
            self._captured(_FLASH_ATTN, dcp=2, drafts=3),
        )

    def _captured(self, backend: str, dcp: int, drafts: int) -> Observation:
        group = None
        if dcp > 1:
            group = Alone(dcp)
            vars(group)["device_group"] = None  # is kept for a call that nobody makes here
        worker = Worker(MLA, backend=backend, tp=2, dcp=dcp, dcp_group=group, page_size=64, graphs=self.graphs)
        if "FULL" in self.graphs and not worker.config.compilation_config.cudagraph_mode.has_full_cudagraphs():
            raise NoSuchPath("vLLM turns full CUDA graphs off under decode context parallelism")
        if drafts:
            worker.config.speculative_config = self._speculation(worker.config, drafts)
        with ExitStack() as stack:
            stack.enter_context(worker)
            layer = worker.layer()
            mode = self._mode(worker, layer, 1 + drafts)
            seen = [mode.name]
            if mode.has_full_cudagraphs() and backend == _FLASHMLA:
                builder = worker.builder([layer])
                self._emulate(stack, builder)
                seen += [_capture(builder, worker.batch((100,) * size, (1 + drafts,) * size)) for size in _SIZES]
        return Observation(float(seen.count("refused")), hashlib.sha256(repr(seen).encode()).hexdigest())

    def _speculation(self, config: Any, drafts: int) -> Any:
        return self.engine["vllm.config"].SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=4,
            target_model_config=config.model_config, target_parallel_config=config.parallel_config,
        )  # fmt: skip

    def _mode(self, worker: Worker, layer: Any, tokens: int) -> Any:
        """What the runner decides for decode steps of so many tokens per request."""
        modes: list[Any] = []
        runner = object.__new__(self.engine[_RUNNER].GPUModelRunner)
        vllm, keys = worker.config, SimpleNamespace(initialize_cudagraph_keys=lambda mode, tokens: modes.append(mode))
        runner.__dict__.update(
            vllm_config=vllm, compilation_config=vllm.compilation_config, parallel_config=vllm.parallel_config,
            uniform_decode_query_len=tokens, cudagraph_dispatcher=keys, max_num_reqs=8,
            kv_cache_config=SimpleNamespace(num_blocks=1 << 10, kv_cache_groups=[], has_mamba_layers=False),
            speculative_config=None,  # n-gram drafts have no graphs of their own
        )  # fmt: skip
        runner._check_and_update_cudagraph_mode([{worker.backend}], [SimpleNamespace(kv_cache_spec=worker.spec(layer))])
        return modes[0]

    def _emulate(self, stack: ExitStack, builder: Any) -> None:
        module: Any = import_module(type(builder).__module__)
        if hasattr(module, "FlashMLASchedMeta"):
            stack.enter_context(
                replaced(module, "get_mla_metadata", lambda *args, **kwargs: (module.FlashMLASchedMeta(), None))
            )
        else:
            stack.enter_context(replaced(module, "get_mla_metadata", flashmla.schedule))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "nothing is found": replaced(wrap, "takes_one_token", lambda builder: False),
            "the builder keeps its level": replaced(wrap, "of_one_token", lambda support: support),
        }


def _capture(builder: Any, batch: Any) -> str:
    try:
        metadata = builder.build_for_cudagraph_capture(batch)
    except AssertionError:
        return "refused"
    return f"{metadata.num_decodes} decodes, {metadata.num_prefills} prefills"
