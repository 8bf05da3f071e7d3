"""A layer of a checkpoint whose FP8 KV cache was calibrated: loaded by the engine, then one step of its backend.

    with running(), CalibratedWorker("flashinfer.FlashInferBackend", scheme=SCHEME) as worker:
        layer = worker.loaded({"k_scale": 0.25, "v_scale": 2.0})
        error = worker.error(layer, context=(16, 3), new=(1, 6))

Real: `config.json` and its `quantization_config`, which the engine reads; the layer, its `create_weights` and the loader of
each parameter; `process_weights_after_loading` of the model loader; the query's quantisation as the layer's forward does it;
the backend's metadata builder, its cache update and its `forward`.

What a machine without a GPU cannot do, and who does it here (besides what `construction` says):
- FlashInfer's wrappers and TRT-LLM's launchers, AITER's attention, vLLM's `reshape_and_cache_flash` and
  `static_scaled_fp8_quant` are stand-ins, which compute with the scales that they are handed. They check no dtypes.
- The Triton kernel that dequantises pages for TRT-LLM's prefill is a stand-in, too.
- `trtllm` answers for the GPU whether it runs TRT-LLM's kernels. `torch.compile` compiles nothing of a layer.
- The layer's own forward is not called: it goes through torch's custom ops. What it does with the query is repeated here.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import pairwise
from types import ModuleType
from typing import Any

from attnfix.patches.lab.emulators import PagedContext, PagedDecode, attention
from attnfix.patches.lab.proof import replaced

from .construction import DENSE, Worker

__all__ = ["AITER", "FLASHINFER", "SCHEME", "CalibratedWorker", "running"]

FLASHINFER = "flashinfer.FlashInferBackend"
AITER = "rocm_aiter_unified_attn.RocmAiterUnifiedAttentionBackend"
#: As llm-compressor writes it: one scale for all heads
SCHEME = {"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True, "dynamic": False}
_BACKENDS = "vllm.v1.attention.backends"


class CalibratedWorker(Worker):
    """A worker whose model is a compressed-tensors checkpoint; `scheme` is its `kv_cache_scheme`.

    quantization: `quantization_config` in its stead. trtllm: whether the GPU runs TRT-LLM's kernels, as Blackwell does;
    "decodes": it has XQA for these alone.
    """

    def __init__(self, backend: str, *, scheme: Any = None, quantization: Any = None, model: Any = DENSE,
                 trtllm: bool | str = False, **more: Any):  # fmt: skip
        given = {"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": {}, "ignore": []}
        quantization = quantization or {**given, "kv_cache_scheme": scheme}
        self._trtllm = trtllm
        with _has_trtllm(trtllm):
            super().__init__({**model, "quantization_config": quantization}, backend=backend, **more)

    def __enter__(self) -> CalibratedWorker:
        self._gpu = ExitStack()
        self._gpu.enter_context(_has_trtllm(self._trtllm))
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._gpu.close()

    def loaded(self, scales: dict[str, float], index: int = 0, **more: Any) -> Any:
        """Layer `index` after the engine has loaded these values into its parameters of these names."""
        import torch

        loader: Any = import_module("vllm.model_executor.model_loader.utils")
        default: Any = import_module("vllm.model_executor.model_loader.weight_utils").default_weight_loader
        with _aiter(), replaced(torch, "compile", lambda function, **options: function):
            layer = self.layer(index, quant_config=self.config.quant_config, **more)
        parameters = dict(layer.named_parameters())
        for name, value in scales.items():
            if name in parameters:
                load = getattr(parameters[name], "weight_loader", default)
                load(parameters[name], torch.tensor(value))
        loader.process_weights_after_loading(torch.nn.ModuleList([layer]), self.config.model_config, torch.device("cpu"))
        return layer

    def step(
        self, layer: Any, context: Sequence[int], new: Sequence[int], builder: Any = None, *, seed: int = 0, exact: bool = False
    ) -> tuple[Any, Any]:
        """(output of the layer's backend, attention in float64 of what nothing was quantised of), each [tokens, heads, d].

        `builder`: of another worker, for a layer whose own does not know it. `exact`: values that FP8 holds, so that a cache of
        FP8 loses nothing by scales that are powers of two.
        """
        import torch

        draw = torch.Generator().manual_seed(seed)
        heads, kv_heads, size = layer.num_heads, layer.num_kv_heads, layer.head_size
        metadata, batch = self._metadata(layer, context, new, builder)
        cache = self._cache(layer, int(batch.block_table_tensor.max()) + 1)
        dtype = self.config.model_config.dtype
        total = sum(context) + sum(new)
        of = [(total, kv_heads)] * 2 + [(sum(new), heads)]
        keys, values, query = (
            torch.randn(*shape, size, generator=draw).to(torch.float8_e4m3fn if exact else dtype).to(dtype) for shape in of
        )
        self._write(layer, keys, values, cache, self._slots(batch, [n + m for n, m in zip(context, new)]))
        out = torch.zeros(sum(new), heads, size, dtype=dtype)
        given = query
        if getattr(layer, "query_quant", None) is not None:  # as the layer's forward does
            given = layer.query_quant(query.flatten(1), layer._q_scale)[0].view(query.shape)
        metadata.slot_mapping = torch.full((sum(new),), -1, dtype=torch.int64)  # it is all written
        layer.impl.forward(layer, given, query.new_zeros(sum(new), kv_heads, size), query.new_zeros(sum(new), kv_heads, size),
                           cache, metadata, output=out)  # fmt: skip
        return out, _reference(query, keys, values, context, new, layer.impl.scale, getattr(layer.impl, "sinks", None))

    def error(self, layer: Any, context: Sequence[int], new: Sequence[int], **more: Any) -> float:
        out, reference = self.step(layer, context, new, **more)
        return float((out.double() - reference).norm() / reference.norm())

    def _metadata(self, layer: Any, context: Any, new: Any, builder: Any) -> tuple[Any, Any]:
        builder = builder or self.builder([layer])
        batch = self.batch(context=context, new=new)
        batch.block_table_tensor += 1  # page 0 is nobody's
        return builder.build(0, batch), batch

    def _cache(self, layer: Any, pages: int) -> Any:
        """An empty cache as the model runner shapes it: uint8 where it is quantised."""
        import torch

        size, dtype = self.config.cache_config.block_size, layer.kv_cache_dtype
        heads, d = layer.num_kv_heads, layer.head_size
        shape_of = getattr(self.backend, "get_kv_cache_shape", None)  # up to 0.30.0
        shape = shape_of(pages, size, heads, d) if shape_of else (pages, heads, size, 2 * d)
        try:
            order = self.backend.get_kv_cache_stride_order()
        except (AttributeError, NotImplementedError):  # the model runner's own way
            order = tuple(range(len(shape)))
        raw = torch.zeros([shape[i] for i in order], dtype=torch.uint8 if "fp8" in dtype else self.config.model_config.dtype)
        return raw.permute(*[order.index(i) for i in range(len(order))])

    def _slots(self, batch: Any, lens: Sequence[int]) -> Any:
        import torch

        size = self.config.cache_config.block_size
        at = [(b, token) for b, n in enumerate(lens) for token in range(n)]
        return torch.tensor([int(batch.block_table_tensor[b, t // size]) * size + t % size for b, t in at])

    def _write(self, layer: Any, keys: Any, values: Any, cache: Any, slots: Any) -> None:
        if hasattr(layer.impl, "do_kv_cache_update"):
            layer.impl.do_kv_cache_update(layer, keys, values, cache, slots)
        else:  # up to 0.15 a part of the forward
            k_cache, v_cache = cache.unbind(1 if self.backend_path.endswith(FLASHINFER) else 0)
            scales = layer._k_scale, layer._v_scale
            _reshape_and_cache_flash(keys, values, k_cache, v_cache, slots, layer.kv_cache_dtype, *scales)


@contextmanager
def running() -> Iterator[None]:
    """Stand-ins at the entry points of the kernels, for as long as the block runs. FlashInfer's layout is HND."""
    import torch

    with ExitStack() as stack:
        for namespace, op in ("_C_cache_ops", _reshape_and_cache_flash), ("_C", _static_scaled_fp8_quant):
            ops = type("Ops", (), {op.__name__.removeprefix("_"): staticmethod(op)})
            stack.enter_context(replaced(torch.ops, namespace, ops))
        flashinfer: Any = import_module(f"{_BACKENDS}.flashinfer")
        stand_ins = {
            "BatchPrefillWithPagedKVCacheWrapper": _CausalPages,
            "BatchAttentionWithAttentionSinkWrapper": _SinkPages,
            "BatchDecodeWithPagedKVCacheWrapper": _Decodes,
            "fast_plan_decode": _plan_decode,
            "get_seq_lens": lambda at, last, size: (at.diff() - 1) * size + last,
            "trtllm_batch_context_with_kv_cache": _written(_context),
            "trtllm_batch_decode_with_kv_cache": _written(PagedDecode()),
            "_trtllm_prefill_attn_kvfp8_dequant": _Dequant(),
            "_copy_page_indices_kernel": _CopyPages(),
            "get_kv_cache_layout": lambda: "HND",
            "_get_trtllm_gen_workspace_buffer": lambda: torch.zeros(8, dtype=torch.uint8),
        }
        for name, stand_in in stand_ins.items():
            if hasattr(flashinfer, name):
                stack.enter_context(replaced(flashinfer, name, stand_in))
        yield


def _reference(query: Any, keys: Any, values: Any, context: Any, new: Any, scale: float, sinks: Any = None) -> Any:
    import torch

    parts, row, at = [], 0, 0
    for n, m in zip(context, new):
        group = query.shape[1] // keys.shape[1]
        k, v = (x[at : at + n + m].repeat_interleave(group, 1) for x in (keys, values))
        parts.append(attention(query[row : row + m], k, v, scale, causal=True, sinks=sinks)[0])
        row, at = row + m, at + n + m
    return torch.cat(parts)


def _reshape_and_cache_flash(key, value, key_cache, value_cache, slots, dtype, k_scale, v_scale):
    """vLLM's op: caches [pages, page size, KV heads, d], any strides; where they hold FP8, what is written is divided by a
    scale, one or one per head. A negative slot is nobody's.
    """
    import torch

    for x, cache, scale in (key, key_cache, k_scale), (value, value_cache, v_scale):
        size, mine = cache.shape[1], slots[slots >= 0]
        kept = x[: len(slots)][slots >= 0]
        if "fp8" in dtype:
            kept = (kept.float() / scale.detach().view(-1, 1)).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
            cache = cache.view(torch.uint8)
        cache[mine // size, mine % size] = kept


def _static_scaled_fp8_quant(out, x, scale, *group_shape):
    """Of one scale for all."""
    out.copy_((x.float() / scale.detach()).clamp(-448, 448).to(out.dtype))


class _Workspace:
    """Of FlashInfer's wrappers, what 0.10.2 hands to TRT-LLM's launchers."""

    def __init__(self, *buffers: Any, **more: Any):
        import torch

        self._float_workspace_buffer = torch.zeros(8, dtype=torch.uint8)


class _CausalPages(_Workspace):
    """FlashInfer's `BatchPrefillWithPagedKVCacheWrapper` in the layout HND, causal; scales are those that `run` is handed."""

    def plan(self, qo_indptr, paged_kv_indptr, paged_kv_indices, paged_kv_last_page_len, num_qo_heads, num_kv_heads,
             head_dim_qk, page_size, *, causal, sm_scale, window_left=-1, logits_soft_cap=None, **shapes):  # fmt: skip
        self._causal, self._sm_scale, self._window_left = causal, sm_scale, window_left
        self._logits_soft_cap = logits_soft_cap or 0.0
        self._at = qo_indptr.tolist()
        pages = paged_kv_indptr.tolist()
        spans = list(pairwise(pages))
        self._lens = [(b - a - 1) * page_size + last for (a, b), last in zip(spans, paged_kv_last_page_len.tolist())]
        self._tables = [paged_kv_indices[a:b] for a, b in spans]

    def run(self, q, paged_kv_cache, *, q_scale=None, k_scale=None, v_scale=None, out=None, **more):
        return self._run(q, paged_kv_cache, self._sm_scale * (q_scale or 1.0) * (k_scale or 1.0), v_scale, out, **more)

    def _run(self, q, paged_kv_cache, scale, v_scale, out, lse=None, return_lse=False, sinks=None, **more):
        both = paged_kv_cache if isinstance(paged_kv_cache, tuple) else paged_kv_cache.unbind(1)  # a tuple from 0.26.0 on
        for b, n in enumerate(self._lens):
            rows = slice(self._at[b], self._at[b + 1])
            k, v = (half[self._tables[b].long()].transpose(1, 2).flatten(0, 1)[:n] for half in both)
            k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
            result, natural = attention(q[rows], k, v, scale, causal=True, sinks=sinks)
            out[rows] = (result * (v_scale or 1.0)).to(out.dtype)
            if return_lse:
                lse[rows] = (natural / math.log(2)).float()


class _SinkPages(_CausalPages):
    """FlashInfer's `BatchAttentionWithAttentionSinkWrapper`: one factor for the scores."""

    def run(self, q, paged_kv_cache, sinks, scale, *, v_scale=None, out=None):  # type: ignore[override]
        return self._run(q, paged_kv_cache, scale, v_scale, out, sinks=sinks)


class _Decodes(_CausalPages):
    """FlashInfer's `BatchDecodeWithPagedKVCacheWrapper` in the layout HND: one row of each request."""

    is_cuda_graph_enabled = False

    def plan(  # type: ignore[override]  # FlashInfer's two wrappers name other arguments
        self, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, **options
    ):
        rows = indptr.new_tensor(range(len(indptr)))
        super().plan(
            rows, indptr, indices, last_page_len, num_qo_heads, num_kv_heads, head_dim, page_size, causal=True, **options
        )


def _plan_decode(wrapper: Any, *, indptr_cpu: Any, last_page_len_cpu: Any, **plan: Any) -> None:
    """The engine's own, of a wrapper without a CUDA graph."""
    wrapper.plan(indptr=indptr_cpu, last_page_len=last_page_len_cpu, **plan)


def _context(**launch: Any) -> Any:
    """The engine hands over counts of pages as `cum_seq_lens_kv`, which the kernel's own lengths make good."""
    from attnfix.patches.lab.proof import cumulative

    launch["cum_seq_lens_kv"] = cumulative(launch["seq_lens"].tolist())
    return PagedContext()(**launch)


def _written(launcher: Any) -> Any:
    """The launcher, for FP8 or bfloat16 pages [pages, 2, KV heads, page size, d], writing into `out`."""

    def launch(*, query: Any, kv_cache: Any, out: Any, **more: Any) -> Any:
        more.pop("o_sf_scale", None)
        return out.copy_(launcher(query=query.double(), kv_cache=[x.double() for x in kv_cache.unbind(1)], **more))

    return launch


class _Dequant:
    """The Triton kernel of that name: page p of request b goes to 1 + b * pages + p, times the scales."""

    def __getitem__(self, grid: tuple[int, int]) -> Any:
        def launch(kv_cache, tables, width, mock, k_scale, v_scale, *strides, **more):
            for b in range(grid[0]):
                for p in range(grid[1]):
                    for half, scale in enumerate((k_scale, v_scale)):
                        page = kv_cache[int(tables[b, p]), half].float() * float(scale)
                        mock[1 + b * width + p, half] = page.to(mock.dtype)

        return launch


class _CopyPages:
    """The Triton kernel `_copy_page_indices_kernel`: the pages of all requests, one after the other."""

    def __getitem__(self, grid: tuple[int]) -> Any:
        def launch(indices, tables, stride, at, **more):
            for b, (start, end) in enumerate(pairwise(at.tolist())):
                indices[start:end] = tables[b, : end - start]

        return launch


def _unified_attention(*, q, k, v, out, cu_seqlens_q, seqused_k, softmax_scale, block_table, q_descale, k_descale, v_descale,
                       output_scale=None, **more):  # fmt: skip
    """AITER's: caches [pages, page size, KV heads, d]. Of FP8 queries it dequantises no keys and values (vLLM 0.19 says so)."""
    import torch

    at, quantised = cu_seqlens_q.tolist(), q.dtype == torch.float8_e4m3fn
    for b, n in enumerate(seqused_k.tolist()):
        rows, pages = slice(at[b], at[b + 1]), block_table[b].long()
        keys, values = (x[pages].flatten(0, 1)[:n].double() for x in (k, v))
        if k.dtype == torch.float8_e4m3fn and not quantised:
            keys, values = keys * k_descale[b, :, None].double(), values * v_descale[b, :, None].double()
        keys, values = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (keys, values))
        out[rows] = attention(q[rows], keys, values, softmax_scale, causal=True)[0].to(out.dtype)


@contextmanager
def _aiter() -> Iterator[None]:
    """AITER to be imported from, which its backend's impl does. Not longer: vLLM asks whether it is installed."""
    names = ["aiter", "aiter.ops", "aiter.ops.triton", "aiter.ops.triton.unified_attention"]
    stand_ins = {name: ModuleType(name) for name in names}
    vars(stand_ins[names[-1]])["unified_attention"] = _unified_attention
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in names:
            del sys.modules[name]


@contextmanager
def _has_trtllm(answer: bool | str) -> Iterator[None]:
    """What the engine asks the GPU: whether it runs TRT-LLM's kernels."""
    home: Any = import_module("vllm.utils.flashinfer")
    backend: Any = import_module(f"{_BACKENDS}.flashinfer")
    pair = "tuple" in str(home.supports_trtllm_attention.__annotations__.get("return"))  # 0.10.2: and VLLM_USE_TRTLLM_ATTENTION

    def given(*asked: Any, is_prefill: bool = False, **more: Any) -> Any:
        has = not is_prefill if answer == "decodes" else answer
        return (has, os.environ.get("VLLM_USE_TRTLLM_ATTENTION")) if pair else has

    with ExitStack() as stack:
        for module in (home, backend):
            if hasattr(module, "supports_trtllm_attention"):
                stack.enter_context(replaced(module, "supports_trtllm_attention", given))
        yield
