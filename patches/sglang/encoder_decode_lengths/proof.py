"""Proof of sglang.encoder-decode-lengths: decode steps of an encoder-decoder model through graphs captured for fewer sizes.

Real: capture and replay of the metadata in `FlashInferAttnBackend`, what plans it, its forward, and the Triton kernel that
writes the KV indices, in the interpreter. Emulated: FlashInfer's wrapper and, from 0.5.3 on, where it moved there, its
`fast_decode_plan`: plan and kernel split the KV as FlashInfer's do. Judged are a layer of self attention and one of cross
attention.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, combine, device, observe, replaced

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_TRANSLATOR = "sglang.srt.mem_cache.kv_index_translator"  # from 0.5.19

_SIZES = (2, 4)  # captured batch sizes: batches of 1 and 3 requests are padded
_ROOM, _CONTEXT = max(_SIZES), 512  # requests, tokens per request: its encoder's and its text's
_HEADS, _DIM = 2, 32
_CHUNK = 128  # FlashInfer's smallest, which it takes where there are enough SMs for all


class DecodeWrapper:
    """FlashInfer's `BatchDecodeWithPagedKVCacheWrapper`, page size 1.

    The plan says how many chunks of its KV each request is split into, from an indptr on the host; in a CUDA graph it always
    splits. The kernel takes KV lengths from the indptr on the GPU, and attends to the planned chunks of them, no others.

    Source: `BatchDecodeWithPagedKVCacheWorkEstimationDispatched` and `DecodeSplitKVIndptr` in `scheduler.cuh`,
    `BatchDecodeWithPagedKVCacheDevice` in `decode.cuh` of FlashInfer 0.2.11 to 0.6.
    """

    use_tensor_cores = False
    _float_workspace_buffer = _int_workspace_buffer = _pin_memory_int_workspace_buffer = None

    def __init__(self, workspace: Any, layout: str, *, use_cuda_graph: bool = False, paged_kv_indptr_buffer: Any = None,
                 paged_kv_indices_buffer: Any = None, **_: Any):  # fmt: skip
        self.is_cuda_graph_enabled, self.device = use_cuda_graph, device()
        self._paged_kv_indptr_buf, self._paged_kv_indices_buf = paged_kv_indptr_buffer, paged_kv_indices_buffer
        self._fixed_batch_size = len(paged_kv_indptr_buffer) - 1 if use_cuda_graph else None
        self._cached_module = SimpleNamespace(plan=self._plan)

    def begin_forward(self, indptr: Any, indices: Any, last_page_len: Any, *shapes: Any, **_: Any) -> None:
        """FlashInfer's own plan, which copies the indptr to the host."""
        if self.is_cuda_graph_enabled:
            self._paged_kv_indptr_buf.copy_(indptr)
            self._paged_kv_indices_buf[: len(indices)].copy_(indices)
        else:
            self._paged_kv_indptr_buf, self._paged_kv_indices_buf = indptr, indices
        self._plan_info = self._plan(None, None, None, indptr.cpu())

    def _plan(self, _float: Any, _int: Any, _pinned: Any, indptr_host: Any, *_: Any) -> list[int]:
        """Chunks of each request; none where the KV is not split."""
        lens = indptr_host.diff().tolist()
        return [max(1, math.ceil(n / _CHUNK)) for n in lens] if self.is_cuda_graph_enabled else []

    def forward(self, q: Any, kv: Any, *, sm_scale: float, logits_soft_cap: float, **_: Any) -> Any:
        import torch

        at, outs = self._paged_kv_indptr_buf.tolist(), []
        for b in range(len(at) - 1):
            kv_len = at[b + 1] - at[b]
            planned = self._plan_info[b] * _CHUNK if self._plan_info else kv_len
            if planned - _CHUNK > kv_len:
                raise NotImplementedError("a chunk behind the last key")
            slots = self._paged_kv_indices_buf[at[b] : at[b] + min(planned, kv_len)].long()
            out, _lse = emulators.attention(q[b : b + 1], kv[0][slots], kv[1][slots], sm_scale)
            outs.append(out)
        return torch.cat(outs).to(q.dtype)


def fast_decode_plan(wrapper: DecodeWrapper, indptr: Any, indices: Any, *shapes: Any, global_override_indptr_cpu: Any = None,
                     **_: Any) -> None:  # fmt: skip
    """FlashInfer's plan of a replay: no copies to the buffers, and the indptr on the host as the caller has it."""
    if len(indptr) - 1 != wrapper._fixed_batch_size or len(indices) > len(wrapper._paged_kv_indices_buf):
        raise ValueError("the batch is not the one of capture, or has more indices than the buffer")
    assert indptr.data_ptr() == wrapper._paged_kv_indptr_buf.data_ptr()
    host = indptr.cpu() if global_override_indptr_cpu is None else global_override_indptr_cpu
    wrapper._plan_info = wrapper._plan(None, None, None, host)


class Decode:
    """Decode steps of a backend: with `graphs` captured per size and replayed."""

    def __init__(self, modules: dict[str, Any], draw: Any, cross: bool, graphs: bool):
        import torch

        self.modules, self.draw, self.cross, self.graphs = modules, draw, cross, graphs
        slots = torch.randperm((_ROOM + 1) * _CONTEXT, generator=draw)
        self.req_to_token = slots.view(_ROOM + 1, _CONTEXT).int().to(device())  # row 0 belongs to padding rows
        kv = (torch.randn(len(slots), _HEADS, _DIM, generator=draw).half().to(device()) for _ in "kv")
        self.kv = tuple(kv)
        pool = SimpleNamespace(get_kv_buffer=lambda layer_id: self.kv)
        self.backend = _backend(modules, self.req_to_token, pool, cross)
        self.captured: dict[int, Any] = {}
        with _Memory():
            self.backend.init_cuda_graph_state(_ROOM, _ROOM)
            for size in _SIZES if graphs else ():
                self._lay_out(self._batch([], [], size), capture=True)
                self.captured[size] = self.backend.forward_metadata

    def __call__(self, encoder: list[int], text: list[int]) -> Observation:
        """A step of requests with these tokens: attention of a text layer and of a cross layer."""
        import torch

        count, before = len(text), self.backend.forward_metadata
        size = next(size for size in _SIZES if size >= count) if self.graphs else count
        batch = self._batch(encoder, text, size)
        with _Memory():
            self._lay_out(batch, capture=False) if self.graphs else self.backend.init_forward_metadata(batch)
        self.backend.forward_metadata = self.captured.get(size, self.backend.forward_metadata)
        assert self.graphs or self.backend.forward_metadata is not before
        seen = []
        for cross in (False, True)[: 1 + self.cross]:
            q = torch.randn(size, _HEADS, _DIM, generator=self.draw).half().to(device())
            out = self.backend.forward_decode(q.flatten(1), None, None, _layer(cross), batch).view(q.shape)
            reference = []
            for b, (before_text, n) in enumerate(zip(encoder if self.cross else [0] * count, text)):
                span = slice(0, before_text) if cross else slice(before_text, before_text + n)
                k, v = (x[self.req_to_token[b + 1, span].long()] for x in self.kv)
                reference.append(emulators.attention(q[b : b + 1], k, v, _DIM**-0.5)[0])
            seen.append(observe(out[:count], torch.cat(reference)))
        return combine(*seen)

    def _lay_out(self, batch: Any, *, capture: bool) -> None:
        """Metadata of a batch, through the call that the graph runner of this release makes at capture or replay."""
        if hasattr(self.backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
            return self.backend.init_forward_metadata_out_graph(batch, in_capture=capture)
        what = batch.req_pool_indices, batch.seq_lens
        rest = batch.encoder_lens, batch.forward_mode, batch.spec_info
        if capture:
            return self.backend.init_forward_metadata_capture_cuda_graph(batch.batch_size, batch.batch_size, *what, *rest)
        return self.backend.init_forward_metadata_replay_cuda_graph(
            batch.batch_size, *what, batch.seq_lens_sum, *rest, seq_lens_cpu=batch.seq_lens_cpu
        )

    def _batch(self, encoder: list[int], text: list[int], size: int) -> Any:
        """Requests in front, padding rows of one token behind them; at capture there are padding rows alone."""
        import torch

        padding = size - len(text)
        tensor = lambda values, dtype=torch.int32: torch.tensor(values, dtype=dtype, device=device())  # noqa: E731
        seq_lens = tensor(text + [1] * padding)
        return _Batch(
            forward_mode=self.modules[_BATCH].ForwardMode.DECODE, batch_size=size, seq_lens=seq_lens,
            seq_lens_cpu=seq_lens.clone().cpu(), seq_lens_sum=int(seq_lens.sum()), spec_info=None, kv_loc_plan=None,
            req_pool_indices=tensor([*range(1, len(text) + 1)] + [0] * padding), positions=tensor([0] * size, torch.int64),
            encoder_lens=tensor(encoder + [1] * padding) if self.cross else None, out_cache_loc=None,
            encoder_out_cache_loc=None, token_to_kv_pool=self.backend.token_to_kv_pool,
        )  # fmt: skip


class _Batch(SimpleNamespace):
    """A forward batch; the newest releases keep a weak reference to it."""


def _backend(modules: dict[str, Any], req_to_token: Any, pool: Any, cross: bool) -> Any:
    import torch

    module, wrappers = modules[_BACKEND], 1 + cross
    kv_indptr = [torch.zeros(_ROOM + 1, dtype=torch.int32, device=device()) for _ in range(wrappers)]
    shared: dict[str, Any] = {
        "kv_last_page_len": torch.ones(_ROOM, dtype=torch.int32, device=device()), "kv_indptr": kv_indptr, "page_size": 1,
    }  # fmt: skip
    if _TRANSLATOR in modules:
        shared["kv_index_translator"] = modules[_TRANSLATOR].KVIndexTranslator(
            req_to_token=req_to_token, token_to_kv_pool_allocator=None, token_to_kv_pool=pool, page_size=1, device=device(),
        )  # fmt: skip
    backend = object.__new__(module.FlashInferAttnBackend)
    backend.__dict__.update(
        shared, workspace_buffer=None, decode_backend="fa2", decode_use_tensor_cores=False, num_wrappers=wrappers,
        dispatch_reason=module.WrapperDispatch.CROSS_ATTENTION if cross else None, skip_prefill=True, max_context_len=_CONTEXT,
        decode_cuda_graph_metadata={}, disable_cuda_graph_kv_split=False, decode_split_tile_size=None,
        use_sliding_window_kv_pool=False, token_to_kv_pool=pool, decode_uses_dequant_workspace=False, is_dllm_model=False,
        forward_metadata=None, decode_wrappers=[DecodeWrapper(None, "NHD") for _ in range(wrappers)],
    )  # fmt: skip
    updater = object.__new__(module.FlashInferIndicesUpdaterDecode)
    updater.__dict__.update(
        shared, num_qo_heads=_HEADS, num_kv_heads=_HEADS, head_dim=_DIM, data_type=torch.float16, q_data_type=torch.float16,
        sliding_window_size=None, req_to_token=req_to_token, token_to_kv_pool_allocator=None, attn_backend=backend,
    )  # fmt: skip
    updater.update = updater.update_cross_attention if cross else updater.update_single_wrapper
    backend.indices_updater_decode = updater
    return backend


def _layer(cross: bool) -> Any:
    return SimpleNamespace(
        layer_id=0, is_cross_attention=cross, tp_q_head_num=_HEADS, head_dim=_DIM, scaling=_DIM**-0.5, logit_cap=0.0,
        k_scale=None, v_scale=None, k_scale_float=None, v_scale_float=None,
    )  # fmt: skip


class _Memory:
    """What the engine asks for on CUDA is memory of `device()`, whose context is entered in its place."""

    def __init__(self) -> None:
        import torch

        self.stack = [replaced(torch, name, self._here(getattr(torch, name))) for name in ("zeros", "empty")]
        self.stack.append(replaced(torch.cuda, "device", lambda _: nullcontext()))

    @staticmethod
    def _here(make: Any) -> Any:
        def made(*args: Any, **kwargs: Any) -> Any:
            return make(*args, **(kwargs | {"device": device()} if kwargs.get("device") == "cuda" else kwargs))

        return made

    def __enter__(self) -> None:
        for one in self.stack:
            one.__enter__()

    def __exit__(self, *error: Any) -> None:
        for one in reversed(self.stack):
            one.__exit__(*error)


class Proof(proof.Proof):
    modules = (_BACKEND, _BATCH, _TRANSLATOR)
    may_lack = (_TRANSLATOR,)
    graphs = True
    around = {"`--disable-cuda-graph`": {"graphs": False}}

    def prepare(self) -> None:
        self.engine[_BACKEND].BatchDecodeWithPagedKVCacheWrapper = DecodeWrapper
        if not hasattr(self.engine[_BACKEND], "fast_decode_plan"):  # up to 0.5.2 the engine's own
            self.engine[_BACKEND].fast_decode_plan = fast_decode_plan

    def scenario(self, seed: int) -> Observation:
        """Requests with much more encoder than text, and about as much; batches that fill a captured size, and padded ones."""
        return self._run(seed, cross=True, graphs=self.graphs)

    def control(self, seed: int) -> Observation:
        """The same requests without graphs; and in graphs, a model without encoder."""
        return combine(self._run(seed, cross=True, graphs=False), self._run(seed, cross=False, graphs=True))

    def _run(self, seed: int, *, cross: bool, graphs: bool) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        decode = Decode(self.engine, draw, cross, graphs)
        lens = lambda low, high: torch.randint(low, high, (_ROOM,), generator=draw).tolist()  # noqa: E731
        seen = []
        for count in range(1, _ROOM + 1):
            seen += [decode(lens(150, 400)[:count], lens(1, 100)[:count]), decode(lens(90, 128)[:count], lens(90, 128)[:count])]
        return combine(*seen)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.planned_from_host
        small_missed = lambda wrappers: real(wrappers) and wrappers[0]._fixed_batch_size > min(_SIZES)  # noqa: E731
        return {
            "the correction does nothing": replaced(wrap, "planned_from_host", lambda wrappers: False),
            "small batches are missed": replaced(wrap, "planned_from_host", small_missed),
            "the host is shown one token each": replaced(wrap, "shown", lambda lens: lens.clamp(max=1)),
        }
