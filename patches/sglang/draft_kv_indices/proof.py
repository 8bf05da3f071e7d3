"""Proof of sglang.draft-kv-indices: draft steps of a full batch whose requests come up to the context length.

Real: allocation, capture and replay of the draft steps' metadata in `FlashInferMultiStepDraftBackend` and its backends, and
the Triton kernel that writes the KV indices, in the interpreter. FlashInfer's wrapper only holds the buffers of capture. A step
is right if its attention kernel, which knows no end of the buffer, finds there exactly the slots of each branch.

GPU memory is watched where the engine asks for it, in the one call of `torch.zeros` on CUDA: what it gets is followed by
random words that belong to others. So the overflow of a stock side stays inside memory of the proof.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import proof
from attnfix.patches.lab.gpu_memory import GpuMemory
from attnfix.patches.lab.proof import Observation, device, observe, replaced
from attnfix.patches.lab.sglang.speculation import draft_input

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
_SPEC = ("sglang.srt.speculative.eagle_utils", "sglang.srt.speculative.spec_utils")
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19
_KERNEL = "generate_draft_decode_kv_indices"

_SIZES = (2, 4)  # captured batch sizes: batches of 1 and 3 requests are padded
_ROOM, _CONTEXT = max(_SIZES), 72  # requests, tokens per request


class HeldBuffers:
    """FlashInfer's `BatchDecodeWithPagedKVCacheWrapper` of a CUDA graph, as far as indices go.

    Its plan compares lengths and takes nothing from the indices: they lie in its buffer already. Its kernel reads, for query
    z, `indices[indptr[z]:indptr[z + 1]]` from the buffer's start, whatever the buffer's length.
    """

    is_cuda_graph_enabled = True

    def __init__(self, workspace: Any, layout: str, *, paged_kv_indptr_buffer: Any, paged_kv_indices_buffer: Any, **_: Any):
        self._paged_kv_indptr_buf, self._paged_kv_indices_buf = paged_kv_indptr_buffer, paged_kv_indices_buffer

    def begin_forward(self, indptr: Any, indices: Any, last_page_len: Any, *_: Any, **__: Any) -> None:
        if len(indptr) != len(self._paged_kv_indptr_buf) or len(indices) > len(self._paged_kv_indices_buf):
            raise ValueError("the batch is not the one of capture, or has more indices than the buffer")
        assert indptr.data_ptr() == self._paged_kv_indptr_buf.data_ptr()
        assert indices.data_ptr() == self._paged_kv_indices_buf.data_ptr()

    def read(self, queries: int) -> list[list[int]]:
        """The KV slots that the kernel attends to, of each of the first `queries` queries."""
        at, row = self._paged_kv_indptr_buf.tolist(), self._paged_kv_indices_buf
        memory = row.as_strided((max(at),), (1,))
        return [memory[at[z] : at[z + 1]].tolist() for z in range(queries)]


def fast_decode_plan(wrapper: HeldBuffers, *args: Any, **kwargs: Any) -> None:
    """FlashInfer's plan of a replay: the same for `HeldBuffers`."""
    HeldBuffers.begin_forward(wrapper, *args, **kwargs)


class Steps:
    """The draft steps of a batch: captured per size, replayed with what is asked."""

    sizes: tuple[int, ...] = _SIZES

    @property
    def asked(self) -> str:
        """The device that the engine's code names."""
        return "cuda"

    def __init__(self, modules: dict[str, Any], draw: Any, topk: int, steps: int):
        import torch

        self.modules, self.topk, self.steps = modules, topk, steps
        width = _CONTEXT + topk * steps  # of the page table: what is drafted lies behind the context
        slots = torch.randperm((_ROOM + 1) * width, generator=draw).to(device())
        self.req_to_token = slots.view(_ROOM + 1, width).int()  # row 0 belongs to padding rows
        self.kv_indptr = torch.zeros(steps, _ROOM * topk + 1, dtype=torch.int32, device=device())
        self.backend = self._backend()
        self.capture(draw)

    def capture(self, draw: Any) -> None:
        self.memory = GpuMemory(draw, self.topk * _ROOM * (_CONTEXT + self.steps), self.asked)
        with self.memory.given():
            self.backend.init_cuda_graph_state(_ROOM, _ROOM * self.topk)
        for size in self.sizes:
            self._lay_out(self._batch([], size), capture=True)

    def __call__(self, lens: list[int]) -> Observation:
        """Replay the steps of requests of `lens` tokens. The last step samples without attention: no one reads its row."""
        import torch

        size = next(size for size in self.sizes if size >= len(lens))
        self._lay_out(self._batch(lens, size), capture=False)
        wrong, read = 0, []
        for step, backend in enumerate(self.backend.attn_backends[: self.steps - 1]):
            found = backend.decode_cuda_graph_metadata[size][0].read(len(lens) * self.topk)
            wrong += found != self._slots(lens, step)
            read += [slot for branch in found for slot in branch]
        wrong += not self.memory.intact()
        bits = observe(*2 * (torch.tensor(read, dtype=torch.float64),)).bits
        return Observation(wrong / self.steps, bits)

    def _slots(self, lens: list[int], step: int) -> list[list[int]]:
        """Slots of the tokens of each branch at a step: the request's, then what this branch has drafted."""
        found = []
        for row, n in zip(self.req_to_token[1:].tolist(), lens):
            for branch in range(self.topk):
                drafted = n + branch * self.steps
                found.append(row[:n] + row[drafted : drafted + step + 1])
        return found

    def _lay_out(self, batch: Any, *, capture: bool) -> None:
        """Metadata of a batch, through the call that the graph runner of this release makes at capture or replay."""
        if hasattr(self.backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
            self.backend.init_forward_metadata_out_graph(batch, in_capture=capture)
        elif capture:
            self.backend.init_forward_metadata_capture_cuda_graph(batch)
        else:
            self.backend.init_forward_metadata_replay_cuda_graph(batch, batch.batch_size)

    def _batch(self, lens: list[int], size: int) -> Any:
        """Requests in front, padding rows of one token behind them; at capture there are padding rows alone."""
        import torch

        padding = size - len(lens)
        tensor = lambda values, dtype=torch.int32: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        seq_lens = tensor(lens + [1] * padding)
        return SimpleNamespace(
            forward_mode=self.modules[_BATCH].ForwardMode.DECODE, batch_size=size, seq_lens=seq_lens,
            seq_lens_cpu=seq_lens.clone().cpu(), seq_lens_sum=sum(lens) or size,
            req_pool_indices=tensor([*range(1, len(lens) + 1)] + [0] * padding),
            positions=tensor(lens + [0] * padding, torch.int64).repeat_interleave(self.topk),
            spec_info=draft_input(self.modules.get(_SPEC[0])),
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token), out_cache_loc=None, kv_loc_plan=None,
        )  # fmt: skip

    def shared(self) -> dict[str, Any]:
        """What the multi-step backend and the backends of its steps have in common."""
        import torch

        shared: dict[str, Any] = {
            "max_context_len": _CONTEXT, "req_to_token_pool": SimpleNamespace(req_to_token=self.req_to_token), "page_size": 1,
            "kv_last_page_len": torch.ones(_ROOM * self.topk, dtype=torch.int32, device=device()),
        }  # fmt: skip
        if _TRANSLATOR in self.modules:
            shared["kv_index_translator"] = self.modules[_TRANSLATOR].KVIndexTranslator(
                req_to_token=self.req_to_token,
                token_to_kv_pool_allocator=None,
                token_to_kv_pool=None,
                page_size=1,
                device=device(),
            )
        return shared

    def _backend(self) -> Any:
        module, shared = self.modules[_BACKEND], self.shared()
        kernel = next(getattr(m, _KERNEL) for m in (module, *map(self.modules.get, _SPEC)) if hasattr(m, _KERNEL))
        backend = object.__new__(module.FlashInferMultiStepDraftBackend)
        backend.__dict__.update(
            shared, topk=self.topk, speculative_num_steps=self.steps, kv_indptr=self.kv_indptr, draft_window_size=0,
            draft_sink_size=0, pool_len=self.req_to_token.shape[1], attn_backends=[],
            generate_draft_decode_kv_indices=kernel,
        )  # fmt: skip
        for row in self.kv_indptr:  # one more than releases from 0.5.3.post2 on have; they pass it over
            backend.attn_backends.append(step_of(module.FlashInferAttnBackend, row, shared))
        return backend


def step_of(kind: Any, row: Any, shared: dict[str, Any]) -> Any:
    """The engine's backend of one step, whose `kv_indptr` is `row`."""
    step = object.__new__(kind)
    step.__dict__.update(
        shared, workspace_buffer=None, decode_backend="fa2", decode_use_tensor_cores=False, kv_indptr=[row],
        num_wrappers=1, dispatch_reason=None, skip_prefill=True, disable_cuda_graph_kv_split=False,
        use_sliding_window_kv_pool=False, decode_cuda_graph_metadata={},
        indices_updater_decode=_updater(sys.modules[kind.__module__], row, shared),
    )  # fmt: skip
    step.indices_updater_decode.attn_backend = step
    return step


def _updater(module: Any, kv_indptr: Any, shared: dict[str, Any]) -> Any:
    """What plans the attention of one step."""
    updater = object.__new__(module.FlashInferIndicesUpdaterDecode)
    updater.__dict__.update(
        shared, num_qo_heads=1, num_kv_heads=1, head_dim=64, data_type=None, q_data_type=None, sliding_window_size=None,
        kv_indptr=[kv_indptr], update=updater.update_single_wrapper,
    )  # fmt: skip
    return updater


class Proof(proof.Proof):
    modules = (_BACKEND, *_SPEC, _BATCH, _TRANSLATOR)
    may_lack = (*_SPEC, _TRANSLATOR)
    kernel = "interpreted"
    measure = "share of draft steps with wrong or overflowing KV indices"
    topk = 0  # drawn
    around = {"`--speculative-eagle-topk 1`": {"topk": 1}}

    def prepare(self) -> None:
        self.engine[_BACKEND].BatchDecodeWithPagedKVCacheWrapper = HeldBuffers
        self.engine[_BACKEND].fast_decode_plan = fast_decode_plan

    def scenario(self, seed: int) -> Iterator[Observation]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        drawn = int(torch.randint(2, 9, (), generator=draw))
        return self._run(draw, topk=self.topk or drawn)

    def control(self, seed: int) -> Iterator[Observation]:
        import torch

        return self._run(torch.Generator().manual_seed(seed), topk=1)

    def _run(self, draw: Any, topk: int) -> Iterator[Observation]:
        """Batches of unequal requests, and one that fills its rows to the last index."""
        import torch

        steps = Steps(self.engine, draw, topk, steps=int(torch.randint(3, 6, (), generator=draw)))
        longest = _CONTEXT - steps.steps
        uneven = [torch.randint(longest // 2, longest, (count,), generator=draw).tolist() for count in (1, 3, _ROOM)]
        return (steps(lens) for lens in (*uneven, [longest] * _ROOM))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        room = {
            "the correction does nothing": lambda backend: backend.max_context_len,
            "a branch is forgotten": lambda backend: (backend.topk - 1) * backend.max_context_len,
            "a request has an index too few": lambda backend: backend.topk * backend.max_context_len - 1,
        }
        return {name: replaced(wrap, "room", wrong) for name, wrong in room.items()}
