"""Proof of sglang.draft-kv-wall: draft steps just below the context length, of a full batch in a CUDA graph and of one request
without.

Real: construction of `FlashInferMultiStepDraftBackend`, its rows of KV indices, capture and replay of the steps' metadata, the
call without a graph, and the Triton kernel that writes the indices, in the interpreter. The steps' own backends are those of
the proof of sglang.draft-kv-indices; without a graph they only hand on what they are given.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

from attnfix.patches.proofkit import proof
from attnfix.patches.proofkit.gpu_memory import GpuMemory
from attnfix.patches.proofkit.proof import Observation, combine, device, observe, replaced
from attnfix.patches.proofkit.sglang.flash_attention import Options
from attnfix.patches.sglang.draft_kv_indices import proof as indices
from attnfix.patches.sglang.draft_kv_indices.proof import Steps

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend"

_CONTEXT, _ROOM = indices._CONTEXT, indices._ROOM
_LONGEST = _CONTEXT - 4  # tokens in the cache of a request that gets one more token
_STEPS = 6


class _Built(Steps):
    """The draft steps over a multi-step backend that its own constructor made."""

    def _backend(self) -> Any:
        module, shared = self.modules[_BACKEND], self.shared()
        kind = module.FlashInferAttnBackend

        def step(runner: Any, kv_indptr_buf: Any, kv_last_page_len_buf: Any, **_: Any) -> Any:
            return indices.step_of(kind, kv_indptr_buf, {**shared, "kv_last_page_len": kv_last_page_len_buf})

        pool = Options(size=_ROOM, req_to_token=self.req_to_token)
        runner = Options(
            **shared | {"req_to_token_pool": pool},
            device=device(),
            model_config=Options(context_len=_CONTEXT),
            server_args=Options(),
        )
        with replaced(module, "FlashInferAttnBackend", step):
            return module.FlashInferMultiStepDraftBackend(runner, self.topk, self.steps)

    def replay(self, lens: list[int]) -> Observation:
        return _refused_or(lambda: self(lens))

    def without_graph(self, lens: list[int]) -> Observation:
        """Share of the steps that are handed other slots than the branches', or 1 where words of others are overwritten."""
        handed: list[tuple[Any, Any]] = []
        steps = self.backend.attn_backends
        for one in steps:
            one.init_forward_metadata = lambda batch: handed.append((batch.spec_info.kv_indptr, batch.spec_info.kv_indices))
        memory = GpuMemory(self.memory.draw, others=self.topk * (_CONTEXT + self.steps))

        def run() -> Observation:
            import torch

            with memory.given("empty"):
                self.backend.init_forward_metadata(self._batch(lens, len(lens)))
            wrong, read = int(not memory.intact()), []
            for step, (at, found) in enumerate(handed[: self.steps - 1]):
                ends, words = at.tolist(), found.tolist()
                branches = [words[a:b] for a, b in itertools.pairwise(ends[: len(lens) * self.topk + 1])]
                wrong += int(branches != self._slots(lens, step))
                read += words[: ends[len(lens) * self.topk]]
            bits = observe(*2 * (torch.tensor(read, dtype=torch.float64),)).bits
            return Observation(wrong / self.steps, bits)

        return _refused_or(run)


def _refused_or(run: Any) -> Observation:
    try:
        return run()
    except AssertionError as refused:
        if "kv_indices" not in str(refused):
            raise
        return Observation(math.inf, str(refused))  # later releases look, and refuse


class Proof(proof.Proof):
    modules, may_lack = indices.Proof.modules, indices.Proof.may_lack
    kernel = "interpreted"
    measure = "share of draft steps with wrong or overflowing KV indices"

    def prepare(self) -> None:
        module = self.engine[_BACKEND]
        module.BatchDecodeWithPagedKVCacheWrapper = indices.HeldBuffers
        module.fast_decode_plan = indices.fast_decode_plan
        options: dict[str, Any] = {
            "resolve_draft_decode_window": lambda runner: (0, 0),
            "get_cuda_graph_max_batch_size": lambda *asked: asked[-1],
            "_cuda_graph_capture_max_bs": lambda *asked: asked[-1],
        }
        for name, default in options.items():  # what later releases ask of a server's arguments
            if hasattr(module, name):
                setattr(module, name, default)

    def scenario(self, seed: int) -> Observation:
        """Chains in a graph, as the rows of trees are the matter of another bug there; one request, with trees, without."""
        self._chains, self._trees = self._made(seed)
        full = self._chains.replay([_LONGEST] * _ROOM)
        return combine(full, self._chains.without_graph([_LONGEST]), self._trees.without_graph([_LONGEST]))

    def control(self, seed: int) -> Observation:
        """The same backends, with requests that are shorter by the steps."""
        if self._chains is None:
            self._chains, self._trees = self._made(seed)
        self._chains.capture(self._chains.memory.draw)  # nothing is left of the scenario
        lens = [_CONTEXT - _STEPS - n for n in range(_ROOM)]
        trees = [self._trees.without_graph(lens[:n]) for n in (1, _ROOM)]
        return combine(self._chains.replay(lens), self._chains.without_graph(lens), *trees)

    _chains: Any = None
    _trees: Any = None

    def _made(self, seed: int) -> tuple[_Built, _Built]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        topk = int(torch.randint(2, 4, (), generator=draw))
        return _Built(self.engine, draw, 1, _STEPS), _Built(self.engine, draw, topk, _STEPS)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        ways = {
            "the correction does nothing": lambda backend, slots: _CONTEXT,
            "an index of each request is forgotten": lambda backend, slots: _LONGEST + _STEPS - 1,
        }
        return {name: replaced(wrap, "room", way) for name, way in ways.items()}
