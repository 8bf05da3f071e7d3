"""Proof of sglang.kv-scales-file: prompts and decode steps of a Llama whose scales of KV come from a file.

Real: `ServerArgs`, the file, its loader and `LlamaModel.load_kv_cache_scales`, `RadixAttention`, the pools, which divide by the
scales, `ForwardBatch`, the attention backends with their own `__init__`, their plan of a batch and their forward. Triton's
kernels run in the interpreter. Emulated: FlashAttention 3, FlashInfer's wrappers, TRT-LLM's kernels on pages, and, from 0.5.16
on, the kernel that writes their cache.
"""

from __future__ import annotations

import importlib
import json
import math
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.emulators import flashinfer
from attnfix.patches.lab.proof import Observation, code_of, cumulative, observe, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
    flash_attention,
)
from attnfix.patches.lab.sglang.engine import module, on_cpu
from attnfix.patches.sglang.trtllm_mha_kv_scales.proof import as_it_is

_LLAMA, _CHECKPOINT = "sglang.srt.models.llama", "sglang.srt.layers.quantization.kv_cache"
_CLASSES = {
    "fa3": ("flashattention_backend", "FlashAttentionBackend"),
    "flashinfer": ("flashinfer_backend", "FlashInferAttnBackend"),
    "triton": ("triton_backend", "TritonAttnBackend"),
    "trtllm_mha": ("trtllm_mha_backend", "TRTLLMHAAttnBackend"),
}
#: Writes the cache of TRT-LLM's kernels, from 0.5.16 on
_FUSED = ("sglang.jit_kernel.fused_fp8_qkv_kv_cache", "sglang.kernels.ops.kvcache.fused_fp8_qkv_kv_cache")
_HOMES = {name: f"sglang.srt.layers.attention.{file}" for name, (file, _) in _CLASSES.items()}
_WRAPPERS = {
    "BatchPrefillWithRaggedKVCacheWrapper": flashinfer.RaggedPrefill,
    "BatchPrefillWithPagedKVCacheWrapper": flashinfer.PagedPrefill,
    "BatchDecodeWithPagedKVCacheWrapper": flashinfer.PagedDecode,
}

_HEADS, _DIM = 2, 32
_ROOM, _CONTEXT = 3, 64  # requests; tokens of each
_PROMPTS, _MORE = [20, 9, 31], [5, 1, 12]
#: Of each layer; powers of two, by which a number of FP8 stays one
_SCALES = 4.0, 2.0
#: How far below the others the scores of most tokens are: they count for nothing, and by keys without their scale they do. So
#: FP8 holds the weights, too, which Triton's kernel rounds to it
_BELOW = 12.0
_FLAGS = "--attention-backend", "triton", "--triton-attention-num-kv-splits", "2", "--kv-cache-dtype", "fp8_e4m3"
_CONFIG = {
    **construction.LLAMA, "num_attention_heads": _HEADS, "num_hidden_layers": len(_SCALES), "head_dim": _DIM,
    "max_position_embeddings": _CONTEXT,
}  # fmt: skip

#: Gives a model its scales
Load = Callable[[Any], None]


class Server:
    """The layers of a Llama, the KV of its requests, and the backends of prefill and decode."""

    def __init__(self, served: Any, seed: int, prefill: str, decode: str, load: Load | None = None):
        import torch

        self.draw = torch.Generator().manual_seed(seed)
        self.runner = type(served)(
            served.server_args, served.model_config, requests=_ROOM, tokens=_ROOM * _CONTEXT, draft=False, window=False
        )
        kind = module("layers.radix_attention").RadixAttention
        self.layers = [kind(_HEADS, _DIM, 1.0, 1, layer_id) for layer_id in range(len(_SCALES))]
        self.runner.model = _model(self.runner.model_config.hf_config, self.layers)
        if load:
            load(self.runner.model)
        runner = self.runner  # which most releases have told by now, and two ask the arguments of the launch
        runner.prefill_attention_backend_str, runner.decode_attention_backend_str = prefill, decode
        backends = {name: self.runner.backend(":".join(_CLASSES[name])) for name in dict.fromkeys((decode, prefill))}
        self.prefills, self.decodes = backends[prefill], backends[decode]
        for row in range(_ROOM):
            self.runner.request(_CONTEXT - 4, row)
        self.text = [(self._keys(), self._values(scale)) for scale in _SCALES]
        self.cached = [0] * _ROOM

    def _keys(self) -> Any:
        """[requests, tokens, 1, d], in the first number alone."""
        import torch

        keys = torch.zeros(_ROOM, _CONTEXT, 1, _DIM, dtype=torch.float16)
        keys[..., 0] = -_BELOW * (torch.rand(keys.shape[:-1], generator=self.draw) < 0.8)
        return keys

    def _values(self, scale: float) -> Any:
        import torch

        drawn = torch.randn(_ROOM, _CONTEXT, 1, _DIM, generator=self.draw)
        return drawn.to(torch.float8_e4m3fn).half() * scale

    def extend(self, new: list[int]) -> Iterator[Observation]:
        """Attention of so many more tokens of each request."""
        import torch

        spans = [range(n, n + more) for n, more in zip(self.cached, new)]
        batch = self._batch(
            "EXTEND", spans, extend_num_tokens=sum(new), extend_seq_lens=torch.tensor(new, dtype=torch.int32),
            extend_seq_lens_cpu=new, extend_prefix_lens=torch.tensor(self.cached, dtype=torch.int32),
            extend_prefix_lens_cpu=self.cached, extend_start_loc=cumulative(new)[:-1],
        )  # fmt: skip
        yield from self._attend(self.prefills, self.prefills.forward_extend, batch, spans)

    def decode(self) -> Iterator[Observation]:
        """Attention of the next token of each request."""
        spans = [range(n, n + 1) for n in self.cached]
        yield from self._attend(self.decodes, self.decodes.forward_decode, self._batch("DECODE", spans), spans)

    def _batch(self, mode: str, spans: list[range], **given: Any) -> Any:
        import torch

        rows, lens = self.runner.req_to_token_pool.req_to_token, [span.stop for span in spans]
        places = torch.tensor([place for span in spans for place in span])
        return self.runner.forward_batch(
            mode, batch_size=_ROOM, input_ids=torch.zeros_like(places), positions=places, seq_lens=torch.tensor(lens),
            seq_lens_cpu=torch.tensor(lens), seq_lens_sum=sum(lens), req_pool_indices=torch.arange(_ROOM),
            out_cache_loc=torch.cat([rows[row, list(span)].long() for row, span in enumerate(spans)]), **given,
        )  # fmt: skip

    def _attend(self, backend: Any, forward: Any, batch: Any, spans: list[range]) -> Iterator[Observation]:
        """Each layer's attention of these tokens, against float64."""
        import torch

        self.cached = [span.stop for span in spans]
        with on_cpu():
            backend.init_forward_metadata(batch)
        for layer, texts in zip(self.layers, self.text):
            q = torch.zeros(len(batch.positions), _HEADS, _DIM, dtype=torch.float16)
            q[..., 0] = torch.tensor([1.0, -1.0])  # to one head most tokens count for nothing, to the other the rest
            k, v = (torch.cat([text[row, list(span)] for row, span in enumerate(spans)]) for text in texts)
            exact = []
            for row, place in ((row, place) for row, span in enumerate(spans) for place in span):
                keys, values = (text[row, : place + 1].expand(-1, _HEADS, -1) for text in texts)
                exact.append(emulators.attention(q[:1], keys, values, layer.scaling)[0])
            try:
                with on_cpu():
                    out = forward(q.flatten(1), k, v, layer, batch)
            except Exception as error:
                if not any(word in str(error) for word in ("'float' object has no attribute", "'NoneType'")):
                    raise
                yield Observation(math.inf, "the engine ends")
            else:
                yield observe(out.view(q.shape), torch.cat(exact))


def _model(config: Any, layers: list[Any]) -> Any:
    """The engine's `LlamaModel`, as far as a file of scales is loaded into it."""
    import torch

    kind = module("models.llama").LlamaModel
    model = kind.__new__(kind)
    torch.nn.Module.__init__(model)
    model.config, model._kv_cache_parallel_layout = config, (0, 1)  # the latter from 0.5.22 on
    model.layers = torch.nn.ModuleList(torch.nn.ModuleDict() for _ in layers)
    for block, layer in zip(model.layers, layers):
        block.self_attn = torch.nn.Module()
        block.self_attn.attn = layer
    return model


def _fused(q: Any, k: Any, v: Any, q_out: Any, k_cache: Any, v_cache: Any, slots: Any, k_scale: Any, v_scale: Any) -> None:
    """The kernel of `fused_fp8_qkv_kv_cache`: rows of K and V, [tokens, numbers], divided by their scales, float32 [1], go to
    the slots of the caches; those of Q are cast."""
    import torch

    for cache, rows, scale in ((k_cache, k, k_scale), (v_cache, v, v_scale)):
        cache[slots] = (rows.float() / scale).to(torch.float8_e4m3fn).view(cache.dtype)
    if q is not None:
        q_out.copy_(q)


class Proof(proof.Proof):
    modules, may_lack = (*_HOMES.values(), _LLAMA, _CHECKPOINT, *_FUSED), _FUSED

    file = True
    around = {"Drop `--quantization-param-path`": {"file": False}}

    def prepare(self) -> None:
        kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
        kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, flash_attention.paged
        kernels.get_scheduler_metadata = None
        flash_attention.use(self.engine[_HOMES["fa3"]], flash_attention.paged)
        vars(self.engine[_HOMES["flashinfer"]]).update(_WRAPPERS)
        trtllm = self.engine[_HOMES["trtllm_mha"]]
        vars(trtllm).update(
            flashinfer=SimpleNamespace(
                decode=SimpleNamespace(trtllm_batch_decode_with_kv_cache=emulators.PagedDecode()),
                prefill=SimpleNamespace(trtllm_batch_context_with_kv_cache=emulators.PagedContext()),
            ),
            scaled_fp8_quant=as_it_is,  # 0.5.14
            make_persistent_multi_ctas_kv_counter_buffer=lambda *_, **__: None,  # of the kernels, in the newest releases
        )
        for home in (self.engine[name] for name in _FUSED if name in self.engine):
            home.is_arch_support_pdl = lambda: False
            home._jit_fused_fp8_qkv_kv_cache_module = lambda *_: SimpleNamespace(fused_fp8_qkv_kv_cache=_fused)
        self.served = construction.serve(*_FLAGS, config=_CONFIG, draft=False)
        reads = {name: code_of(self._kind(name).forward_decode).co_names for name in _CLASSES}
        # Up to 0.5.1.post3, and before 0.5.10, these read what a file leaves, or nothing
        self.broken = ["fa3", *(name for name in ("flashinfer", "triton") if "k_scale_float" in reads[name])]
        self.right = [name for name in ("flashinfer", "triton") if name not in self.broken]
        if hasattr(self._kind("trtllm_mha"), "_get_scalar_scale"):  # before 0.5.14 it leaves out scales, whoever brings them
            fused = any(name in self.engine for name in _FUSED)
            (self.broken if fused else self.right).append("trtllm_mha")

    def _kind(self, name: str) -> Any:
        return getattr(self.engine[_HOMES[name]], _CLASSES[name][1])

    def scenario(self, seed: int) -> Iterator[Observation]:
        """Each backend by itself, and two at a time."""
        load = self._from_file if self.file else None
        for name in self.broken:
            yield from self._serve(seed, name, name, load)
        for prefill, decode in zip(self.broken, self.broken[1:]):
            yield from self._serve(seed, prefill, decode, load)
            yield from self._serve(seed, decode, prefill, load)

    def control(self, seed: int) -> Iterator[Observation]:
        """No scales; those of a checkpoint; and those of a file, where the backend is right with them."""
        for name in *self.broken, *self.right:
            yield from self._serve(seed, name, name, None)
            yield from self._serve(seed, name, name, self._from_checkpoint)
        for name in self.right:
            yield from self._serve(seed, name, name, self._from_file)

    def _serve(self, seed: int, prefill: str, decode: str, load: Load | None) -> Iterator[Observation]:
        server = Server(self.served, seed, prefill, decode, load)
        yield from server.extend(_PROMPTS)
        yield from server.decode()
        if prefill != "flashinfer":  # which up to 0.5.17 reads a prefix without scales, whoever brings them
            yield from server.extend(_MORE)
            yield from server.decode()

    @staticmethod
    def _from_file(model: Any) -> None:
        scales = {"0": dict(enumerate(_SCALES))}
        text = {"model_type": "llama", "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": scales}}
        with tempfile.TemporaryDirectory(prefix="attnfix-scales-") as folder:
            (file := Path(folder) / "scales.json").write_text(json.dumps(text))
            model.load_kv_cache_scales(str(file))

    def _from_checkpoint(self, model: Any) -> None:
        method = self.engine[_CHECKPOINT].BaseKVCacheMethod(None)
        for block, scale in zip(model.layers, _SCALES):
            method.create_weights(layer := block.self_attn.attn)
            for name in "k_scale", "v_scale":
                getattr(layer, name).fill_(scale)
            method.process_weights_after_loading(layer)

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        complete = wrap.complete

        def half(layer: Any, device: Any) -> None:
            complete(layer, device)
            layer.v_scale_float = 1.0

        def numbers(layer: Any, device: Any) -> None:
            complete(layer, None)

        ways = {"fa3 gets no tensors": replaced(wrap, "complete", numbers)}
        for name in self.broken:
            others = {other: at for other, at in wrap.CLASSES.items() if other != name}
            ways[f"{name} is forgotten"] = replaced(wrap, "CLASSES", others)
        if len(self.broken) > 1:
            ways["values have no scale"] = replaced(wrap, "complete", half)
        return ways
