"""Proof of sglang.draft-kv-context-limit: draft steps just below the context length, on three backends: a full batch in a CUDA
graph, and one request without.

Real: construction of the multi-step backends, their rows of KV indices, capture and replay of the steps' metadata, the call
without a graph, and the Triton kernel that writes the indices, in the interpreter. FlashInfer's backends of the steps are those
of the proof of sglang.draft-kv-indices. Those of latent attention and of Triton are played: they hold the row that capture
hands them. Without a graph all of them only hand on what they are given.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.gpu_memory import GpuMemory
from attnfix.patches.lab.proof import Observation, device, observe, replaced
from attnfix.patches.lab.sglang.flash_attention import Options
from attnfix.patches.sglang.draft_kv_indices import proof as indices
from attnfix.patches.sglang.draft_kv_indices.proof import Steps

_FLASHINFER, _MLA, _TRITON = (
    f"sglang.srt.layers.attention.{name}_backend" for name in ("flashinfer", "flashinfer_mla", "triton")
)

_CONTEXT, _ROOM = indices._CONTEXT, indices._ROOM
_LONGEST = _CONTEXT - 4  # tokens in the cache of a request that gets one more token
_STEPS = 6


class _Built(Steps):
    """The draft steps over a multi-step backend that its own constructor made."""

    home, kind, step = _FLASHINFER, "FlashInferMultiStepDraftBackend", "FlashInferAttnBackend"
    fresh = "empty"  # how memory for one batch is taken
    sizes = (_ROOM,)

    @property
    def graphs(self) -> bool:
        """In a graph FlashInfer's rows of trees are the matter of another bug."""
        return self.topk == 1

    def _backend(self) -> Any:
        module, shared = self.modules[self.home], self.shared()
        pool = Options(size=_ROOM, req_to_token=self.req_to_token)
        runner = Options(
            **shared | {"req_to_token_pool": pool},
            device=device(),
            model_config=Options(context_len=_CONTEXT, get_max_num_attention_heads=lambda: 1),
            server_args=Options(page_size=1),
            sliding_window_size=None,
        )
        with self._making(module, getattr(module, self.step)):
            return getattr(module, self.kind)(runner, self.topk, self.steps)

    def _making(self, module: Any, kind: Any) -> AbstractContextManager[None]:
        """Inside it the engine's constructor gets such backends of steps."""
        shared = self.shared()

        def step(runner: Any, kv_indptr_buf: Any, kv_last_page_len_buf: Any, **_: Any) -> Any:
            return indices.step_of(kind, kv_indptr_buf, {**shared, "kv_last_page_len": kv_last_page_len_buf})

        return replaced(module, self.step, step)

    def capture(self, draw: Any) -> None:
        """Not before it is replayed: interpreted kernels run then, and some of these backends have no graphs here."""
        self.draw = draw

    def replay(self, lens: list[int]) -> Observation:
        super().capture(self.draw)
        return _refused_or(lambda: self(lens))

    def without_graph(self, lens: list[int]) -> Observation:
        """Share of the steps that are handed other slots than the branches', or 1 where words of others are overwritten."""
        handed: list[tuple[Any, Any]] = []
        steps = self.backend.attn_backends
        for one in steps:
            one.init_forward_metadata = lambda batch: handed.append((batch.spec_info.kv_indptr, batch.spec_info.kv_indices))
        memory = GpuMemory(self.draw, self.topk * (_CONTEXT + self.steps), self.asked)

        def run() -> Observation:
            import torch

            with memory.given(self.fresh):
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


class _Played(_Built):
    """Backends of steps are played. The engine's class of them stays in its place, and makes others: a fix that has corrections
    on it and on the multi-step backend looks whether it does.
    """

    @contextmanager
    def _making(self, module: Any, kind: Any) -> Iterator[None]:
        kind.__new__ = lambda kind, *args, **options: _Step(*args, **options)
        try:
            yield
        finally:
            del kind.__new__


class _Latent(_Played):
    """FlashInfer's latent attention, which has chains alone."""

    home, kind, step = _MLA, "FlashInferMLAMultiStepDraftBackend", "FlashInferMLAAttnBackend"
    fresh = "zeros"


class _Triton(_Played):
    home, kind, step = _TRITON, "TritonMultiStepDraftBackend", "TritonAttnBackend"
    graphs = True

    @property
    def asked(self) -> str:
        return device()

    def _batch(self, lens: list[int], size: int) -> Any:
        """Releases that need no lengths on the host are given no sum of them."""
        batch = super()._batch(lens, size)
        batch.kv_loc_cols = None
        if hasattr(self.backend, "needs_cpu_seq_lens"):
            batch.seq_lens_sum = None
        return batch


class _Step:
    """The backend of one step: it keeps the row that capture hands it, for a kernel that reads what `kv_indptr` says."""

    max_context_len, max_kv_splits, use_sliding_window_kv_pool = _CONTEXT, 1, False
    indices_updater_decode = Options(page_size=1)

    def __init__(self, runner: Any, *, kv_indptr_buf: Any, **_: Any):
        self.kv_indptr = kv_indptr_buf

    def init_cuda_graph_state(
        self, max_bs: int, tokens: int, kv_indices_buf: Any, cuda_graph_num_kv_splits_buf: Any = None
    ) -> None:
        self.cuda_graph_num_kv_splits = cuda_graph_num_kv_splits_buf
        branches = tokens // max_bs
        self.decode_cuda_graph_metadata = {
            size: [
                indices.HeldBuffers(
                    None, "", paged_kv_indptr_buffer=self.kv_indptr[: size * branches + 1],
                    paged_kv_indices_buffer=kv_indices_buf,
                )
            ]
            for size in _Built.sizes
        }  # fmt: skip

    def played(self, *args: Any, **kwargs: Any) -> None:
        """What is planned of a step takes nothing from its list of slots."""

    init_forward_metadata_out_graph = get_num_kv_splits = played
    init_forward_metadata_capture_cuda_graph = init_forward_metadata_replay_cuda_graph = played


def _refused_or(run: Any) -> Observation:
    try:
        return run()
    except AssertionError as refused:
        if "kv_indices" not in str(refused):
            raise
        return Observation(math.inf, str(refused))  # later releases look, and refuse


class Proof(proof.Proof):
    modules, may_lack = (*indices.Proof.modules, _MLA, _TRITON), indices.Proof.may_lack
    kernel = "interpreted"
    measure = "share of draft steps with wrong or overflowing KV indices"

    def prepare(self) -> None:
        module = self.engine[_FLASHINFER]
        module.BatchDecodeWithPagedKVCacheWrapper = indices.HeldBuffers
        module.fast_decode_plan = indices.fast_decode_plan
        one = Options(page_size=1, attn_tp_size=1)
        options: dict[str, Any] = {
            "resolve_draft_decode_window": lambda runner: (0, 0),
            "get_cuda_graph_max_batch_size": lambda *asked: asked[-1],
            "_cuda_graph_capture_max_bs": lambda *asked: asked[-1],
            "get_attention_tp_size": lambda: 1,
            "get_parallel": lambda: one,
            "get_schedule": lambda: one,
        }
        for name, default in options.items():  # what releases ask of a server's arguments
            for home in (_FLASHINFER, _MLA, _TRITON):
                if hasattr(self.engine[home], name):
                    setattr(self.engine[home], name, default)

    def scenario(self, seed: int) -> Iterator[Observation]:
        self._made = []
        for steps in self._make(seed):
            self._made.append(steps)
            yield steps.without_graph([_LONGEST])
            if steps.graphs:
                yield steps.replay([_LONGEST] * _ROOM)

    def control(self, seed: int) -> Iterator[Observation]:
        """The same backends, with requests that are shorter by the steps."""
        lens = [_CONTEXT - _STEPS - n for n in range(_ROOM)]
        for steps in self._made or self._make(seed):
            yield steps.without_graph(lens[:2])
            if steps.graphs:
                yield steps.replay(lens)

    _made: list[_Built] | None = None

    def _make(self, seed: int) -> Iterator[_Built]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        topk = int(torch.randint(2, 4, (), generator=draw))
        for kind, branches in ((_Built, 1), (_Built, topk), (_Latent, 1), (_Triton, 1), (_Triton, topk)):
            yield kind(self.engine, draw, branches, _STEPS)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.room

        def stays(kind: str) -> Any:
            return lambda backend, slots: _CONTEXT if type(backend).__name__ == kind else real(backend, slots)

        ways = {
            "the correction does nothing": lambda backend, slots: _CONTEXT,
            "FlashInfer's rows stay": stays(_Built.kind),
            "rows of latent attention stay": stays(_Latent.kind),
            "Triton's rows stay": stays(_Triton.kind),
            "an index of each request is forgotten": lambda backend, slots: _LONGEST + _STEPS - 1,
        }
        return {name: replaced(wrap, "room", way) for name, way in ways.items()}
