"""Chunked-prefix MHA of a DeepSeek-type layer through real sglang code on the CPU: what the proofs about it share.

Real: the model's own `forward_normal_chunked_kv_core` and `_chunked_prefix_attn_mha`, run out of their file (the module would
bring in every kernel of the model); the forward batch's chunk planning; the backends and their metadata. Emulated: FlashInfer's
ragged wrapper, the TRT-LLM ragged kernel, the CUDA merge, and sglang's own fix-up kernel where a release has it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.excerpt import run_excerpt
from attnfix.patches.lab.proof import Proof, cumulative

TRTLLM = "sglang.srt.layers.attention.trtllm_mla_backend"
FLASHINFER = "sglang.srt.layers.attention.flashinfer_mla_backend"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_POOL = "sglang.srt.mem_cache.memory_pool"
_CONTEXT = "sglang.srt.model_executor.forward_context"
_MERGE = "sglang.srt.layers.attention.merge_state"

HEADS, NOPE, ROPE, VDIM, LORA = 4, 128, 64, 128, 512
CHUNK = 16  # tokens of each request in a chunk; the engine's own figure is 128k for the whole batch
_FILES = "deepseek_common/attention_forward_methods/forward_mha.py", "deepseek_v2.py"
_METHODS = "forward_normal_chunked_kv_core", "_chunked_prefix_attn_mha"


def _split(rows: Any) -> tuple[Any, Any]:
    return rows[:, :LORA], rows[:, None, LORA:]


def _layer() -> Any:
    return SimpleNamespace(
        tp_q_head_num=HEADS, tp_k_head_num=HEADS, tp_v_head_num=HEADS, head_dim=NOPE + ROPE, v_head_dim=VDIM,
        scaling=(NOPE + ROPE) ** -0.5, layer_id=0, k_scale_float=None, logit_cap=0.0,
    )  # fmt: skip


class ChunkedPrefix(Proof):
    """A proof about chunked prefix: stand-ins for its kernels, and its outputs of a batch."""

    modules: tuple[str, ...] = (TRTLLM, FLASHINFER, _BATCH, _POOL, _CONTEXT, _MERGE)
    may_lack = (_CONTEXT, _MERGE)

    def prepare(self) -> None:
        if _MERGE in self.engine:  # the methods' merge from 0.5.20; a name in their own module before
            self.engine[_MERGE].merge_state = emulators.merge_state_v2
        if hasattr(self.engine[TRTLLM], "fixup_zero_kv_rows"):
            self.engine[TRTLLM].fixup_zero_kv_rows = emulators.fixup_zero_kv_rows

    def has_trtllm_prefill(self) -> bool:
        """Whether the TRT-LLM backend runs prefill by itself in this release."""
        return "forward_extend" in vars(self.engine[TRTLLM].TRTLLMMLABackend)

    def use(self, lse_base: float) -> None:
        """Put new stand-ins for the attention kernels in place, whose LSE has that base."""
        kernel = emulators.TrtllmRaggedAttention(lse_base)
        self.engine[TRTLLM].flashinfer = SimpleNamespace(prefill=SimpleNamespace(trtllm_ragged_attention_deepseek=kernel))
        self.engine[FLASHINFER].BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: emulators.RaggedWrapper(lse_base)

    def outputs(
        self, seed: int, prefix: list[int], new: list[int], module: str, *, fallback: bool = False, dtype: str = "bfloat16",
        behind: Callable[[Any, Any], Any] | None = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """(out, float64 reference) of a batch's new tokens, [tokens, heads, v_head_dim], through the backend of `module`.

        prefix, new: cached and new tokens of each request. With `fallback` the TRT-LLM backend hands over to FlashInfer's.
        `behind` gives the backend that the model sees, of the one that attends and the batch.
        """
        import torch

        draw = torch.Generator().manual_seed(seed)
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(getattr(torch, dtype))  # noqa: E731
        latent, weight = tensor(len(prefix), 64, LORA + ROPE), tensor(HEADS * (NOPE + VDIM), LORA) * LORA**-0.5
        q, k, v = tensor(sum(new), HEADS, NOPE + ROPE), tensor(sum(new), HEADS, NOPE + ROPE), tensor(sum(new), HEADS, VDIM)
        layer, batch = _layer(), self._forward_batch(prefix, new, latent)
        backend = self._backend(module, new, fallback, q.dtype)
        backend.token_to_kv_pool = batch.token_to_kv_pool
        batch.attn_backend = backend = behind(backend, batch) if behind else backend
        if _CONTEXT in self.engine:  # 0.5.12 and later read backend and pool through it
            context = self.engine[_CONTEXT]
            context.set_forward_context(context.ForwardContext(attn_backend=backend))
        # `forward` is what layers call; of a backend alone, the proof's call goes where that leads
        attend = backend.forward if behind else backend.forward_extend
        out = self._attention(attend, layer, weight, latent).forward_normal_chunked_kv_core(q, k, v, batch)

        at = cumulative(new).tolist()
        reference = []
        for b, n in enumerate(prefix):
            rows, cached = slice(at[b], at[b + 1]), latent[b, :n].double()
            up = (cached[:, :LORA] @ weight.double().t()).view(-1, HEADS, NOPE + VDIM)
            cached_k = torch.cat([up[..., :NOPE], cached[:, None, LORA:].expand(-1, HEADS, -1)], dim=-1)
            both = torch.cat([cached_k, k[rows].double()]), torch.cat([up[..., NOPE:], v[rows].double()])
            reference.append(emulators.attention(q[rows], *both, layer.scaling, causal=True)[0])
        return out.view(-1, HEADS, VDIM), torch.cat(reference)

    def _attention(self, attend: Any, layer: Any, weight: Any, latent: Any) -> Any:
        """The model's attention: its own methods on an object that holds what they read."""

        def attn_mha(q: Any, k: Any, v: Any, batch: Any, save_kv_cache: bool, **_: Any) -> Any:
            return attend(q, k, v, layer, batch, save_kv_cache=save_kv_cache)

        mha: Any = attn_mha
        mha.layer_id = layer.layer_id
        attention = SimpleNamespace(
            num_local_heads=HEADS, kv_lora_rank=LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VDIM,
            attn_mha=mha, kv_b_proj=lambda latent: (latent @ weight.t(), None), o_proj=lambda out: (out, None),
            _get_mla_kv_buffer=lambda at, dtype, batch: _split(latent.view(-1, LORA + ROPE)[at]),
        )  # fmt: skip
        for name, function in self._methods().items():
            setattr(attention, name, MethodType(function, attention))
        return attention

    def _backend(self, module: str, new: list[int], fallback: bool, dtype: Any) -> Any:
        import torch

        flashinfer, lens = self.engine[FLASHINFER], torch.tensor(new, dtype=torch.int32)
        kind = self.engine[TRTLLM].TRTLLMMLABackend if module == TRTLLM else flashinfer.FlashInferMLAAttnBackend
        backend = object.__new__(kind)
        backend.__dict__.update(
            data_type=dtype, q_data_type=dtype, enable_chunk_kv=True, disable_chunked_prefix_cache=fallback,
            workspace_buffer=torch.zeros(1 << 16, dtype=torch.uint8),  # kept over calls, never filled again
        )  # fmt: skip
        runner = backend.mha_chunk_kv_cache = object.__new__(flashinfer.FlashInferMhaChunkKVRunner)
        runner.__dict__.update(
            num_local_heads=HEADS, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VDIM, fmha_backend="auto",
            data_type=dtype, q_data_type=dtype, workspace_buffer=None, chunk_ragged_wrappers=[],
            qo_indptr=torch.zeros(len(new) + 1, dtype=torch.int32),
            ragged_wrapper=flashinfer.BatchPrefillWithRaggedKVCacheWrapper(),
        )  # fmt: skip
        if module == TRTLLM:
            metadata = self.engine[TRTLLM].TRTLLMMLAPrefillMetadata(max(new), cumulative(new), lens)
            if fallback:  # its init_forward_metadata has then planned the new tokens' attention
                metadata.fallback_to_flashinfer_impl = True
                runner.ragged_wrapper.begin_forward(metadata.cum_seq_lens, metadata.cum_seq_lens)
            backend.forward_prefill_metadata = metadata
        return backend

    def _forward_batch(self, prefix: list[int], new: list[int], latent: Any) -> Any:
        import torch

        batch = object.__new__(self.engine[_BATCH].ForwardBatch)
        pool = object.__new__(self.engine[_POOL].MLATokenToKVPool)
        pool.get_key_buffer = lambda layer_id: latent.view(-1, 1, LORA + ROPE)  # how the model reads it up to 0.5.4
        slots = torch.arange(latent.shape[0] * latent.shape[1]).view(latent.shape[:2])

        def prepare_chunked_kv_indices(*_: Any) -> None:
            spans = [slice(at, at + CHUNK) for at in range(0, max(prefix), CHUNK)]
            batch.prefix_chunk_kv_indices = [torch.cat([slots[b, :n][at] for b, n in enumerate(prefix)]) for at in spans]

        tensor = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
        batch.__dict__.update(
            forward_mode=self.engine[_BATCH].ForwardMode.EXTEND, batch_size=len(prefix), token_to_kv_pool=pool,
            extend_prefix_lens=tensor(prefix), extend_prefix_lens_cpu=prefix, extend_seq_lens=tensor(new),
            extend_seq_lens_cpu=new, seq_lens=tensor([n + m for n, m in zip(prefix, new)]),
            get_max_chunk_capacity=lambda: CHUNK * len(prefix),
            # Its Triton kernel reads the page table, which is no part of this
            prepare_chunked_kv_indices=prepare_chunked_kv_indices,
        )  # fmt: skip
        return batch

    @cache
    def _methods(self) -> dict[str, Any]:
        """The two methods out of the model's file. What they call beside kernels is settled for one rank and plain KV."""
        models = Path(self.engine[_BATCH].__file__).parents[1] / "models"
        path = next(models / file for file in _FILES if (models / file).is_file())
        tree = ast.parse(path.read_text())
        nodes = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in _METHODS}
        import torch

        names: dict[str, Any] = dict(
            torch=torch, merge_state_v2=emulators.merge_state_v2, _is_hip=False,
            all_gather_kv_cache_for_mha_chunk_extend=lambda kv_a, k_pe, *lens: (kv_a, k_pe),
            use_packed_prefix_chunks=lambda *_: False, use_fused_prefix_extend=lambda *_: False,
            use_dense_prefix_kv=lambda *_: False,
        )  # fmt: skip
        names["_resolve_attn_backend"] = names["resolve_attn_backend"] = lambda batch: batch.attn_backend
        names["get_attn_backend"] = lambda: self.engine[_CONTEXT].get_attn_backend()
        names = run_excerpt(path, *nodes.values(), **names)
        return {name: names[name] for name in nodes}
