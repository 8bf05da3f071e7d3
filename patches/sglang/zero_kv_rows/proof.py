"""Proof of sglang.zero-kv-rows: chunked prefix of four requests with unequal cached lengths, through the real backend.

Real: the forward batch's chunk planning, `TRTLLMMLABackend.forward_extend`, their metadata. Emulated: the TRT-LLM ragged
kernel, the CUDA merge, and sglang's own fix-up kernel where a release has it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from attnfix.patches import emulators
from attnfix.patches.scenario import NoSuchPath, Observation, cumulative, fixup_sabotages, observe

_BACKEND = "sglang.srt.layers.attention.trtllm_mla_backend"
_BATCH = "sglang.srt.model_executor.forward_batch_info"
_POOL = "sglang.srt.mem_cache.memory_pool"
_RAGGED = "sglang.srt.layers.attention.flashinfer_mla_backend"
_CONTEXT = "sglang.srt.model_executor.forward_context"
MODULES = (_BACKEND, _BATCH, _POOL, _RAGGED, _CONTEXT)
MAY_LACK = (_CONTEXT,)
KERNEL = "emulated"
sabotages = fixup_sabotages

_HEADS, _DIM, _VDIM, _CHUNK = 4, 192, 128, 16
_EXTEND = [3, 2, 4, 5]
_UNEQUAL = [5, 37, 0, 20]  # every chunk but the first has several empty requests, and one request has no prefix at all
_EQUAL = [37, 33, 35, 48]  # three full chunks for everyone: the bug is not touched
_modules: dict[str, Any] = {}


def prepare(modules: dict[str, Any]) -> None:
    _modules.update(modules)
    backend = modules[_BACKEND]
    if "forward_extend" not in vars(backend.TRTLLMMLABackend):
        raise NoSuchPath("the TRT-LLM MLA backend has no prefill of its own")
    prefill = SimpleNamespace(trtllm_ragged_attention_deepseek=emulators.TrtllmRaggedAttention())
    backend.flashinfer = SimpleNamespace(prefill=prefill)
    modules[_RAGGED].BatchPrefillWithRaggedKVCacheWrapper = emulators.RaggedWrapper
    if hasattr(backend, "fixup_zero_kv_rows"):
        backend.fixup_zero_kv_rows = emulators.fixup_zero_kv_rows


def scenario(seed: int) -> Observation:
    return _run(seed, _UNEQUAL)


def control(seed: int) -> Observation:
    return _run(seed, _EQUAL)


def _run(seed: int, prefix_lens: list[int]) -> Observation:
    import torch

    draw = torch.Generator().manual_seed(seed)
    tensor = lambda *shape: torch.randn(*shape, generator=draw).bfloat16()  # noqa: E731
    keys, values = tensor(len(prefix_lens), 64, _HEADS, _DIM), tensor(len(prefix_lens), 64, _HEADS, _VDIM)
    q, k, v = tensor(sum(_EXTEND), _HEADS, _DIM), tensor(sum(_EXTEND), _HEADS, _DIM), tensor(sum(_EXTEND), _HEADS, _VDIM)
    backend, layer, batch = _backend(), _layer(), _forward_batch(prefix_lens)
    backend.token_to_kv_pool = batch.token_to_kv_pool
    if _CONTEXT in _modules:  # 0.5.12 and later read the pool through it
        context = _modules[_CONTEXT]
        context.set_forward_context(context.ForwardContext(attn_backend=backend))
    batch.prepare_chunked_prefix_cache_info(torch.device("cpu"))
    backend.init_mha_chunk_metadata(batch)

    # As the model does it: new tokens first, then one prefix chunk after the other is merged in.
    batch.set_attn_attend_prefix_cache(False)
    out, lse = backend.forward_extend(q, k, v, layer, batch, save_kv_cache=False)
    batch.set_attn_attend_prefix_cache(True)
    for chunk in range(batch.num_prefix_chunks):
        batch.set_prefix_chunk_idx(chunk)
        spans = [slice(chunk * _CHUNK, max(chunk * _CHUNK, min(n, (chunk + 1) * _CHUNK))) for n in prefix_lens]
        chunk_k = torch.cat([keys[b, span] for b, span in enumerate(spans)])
        chunk_v = torch.cat([values[b, span] for b, span in enumerate(spans)])
        part, part_lse = backend.forward_extend(q, chunk_k, chunk_v, layer, batch, save_kv_cache=False)
        merged, merged_lse = torch.empty_like(out), torch.empty_like(lse)
        emulators.merge_state_v2(part, part_lse, out, lse, merged, merged_lse)
        out, lse = merged, merged_lse

    at = cumulative(_EXTEND).tolist()
    reference = []
    for b, n in enumerate(prefix_lens):
        rows = slice(at[b], at[b + 1])
        all_k, all_v = torch.cat([keys[b, :n], k[rows]]), torch.cat([values[b, :n], v[rows]])
        reference.append(emulators.attention(q[rows], all_k, all_v, layer.scaling, causal=True)[0])
    return observe(out.view(-1, _HEADS, _VDIM), torch.cat(reference))


def _backend() -> Any:
    import torch

    module = _modules[_BACKEND]
    backend = object.__new__(module.TRTLLMMLABackend)
    backend.data_type = backend.q_data_type = torch.bfloat16
    backend.workspace_buffer = torch.zeros(1 << 16, dtype=torch.uint8)  # kept over calls, never filled again
    new = torch.tensor(_EXTEND, dtype=torch.int32)
    backend.forward_prefill_metadata = module.TRTLLMMLAPrefillMetadata(max(_EXTEND), cumulative(_EXTEND), new)
    backend.enable_chunk_kv, backend.disable_chunked_prefix_cache = True, False
    backend.mha_chunk_kv_cache = _flashinfer_runner()
    return backend


def _flashinfer_runner() -> Any:
    """What 0.5.2 delegates prefix chunks to: the engine's own runner over FlashInfer's ragged wrapper."""
    import torch

    runner = object.__new__(_modules[_RAGGED].FlashInferMhaChunkKVRunner)
    runner.__dict__.update(
        num_local_heads=_HEADS, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=_VDIM,
        data_type=torch.bfloat16, q_data_type=torch.bfloat16, workspace_buffer=None, fmha_backend="auto",
        qo_indptr=torch.zeros(len(_EXTEND) + 1, dtype=torch.int32),
        chunk_ragged_wrappers=[], ragged_wrapper=emulators.RaggedWrapper(),
    )  # fmt: skip
    return runner


def _layer() -> Any:
    return SimpleNamespace(
        tp_q_head_num=_HEADS, tp_k_head_num=_HEADS, tp_v_head_num=_HEADS, head_dim=_DIM, v_head_dim=_VDIM,
        scaling=_DIM**-0.5, layer_id=0, k_scale_float=None, logit_cap=0.0,
    )  # fmt: skip


def _forward_batch(prefix_lens: list[int]) -> Any:
    import torch

    batch = object.__new__(_modules[_BATCH].ForwardBatch)
    requests = len(prefix_lens)
    tensor = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
    batch.__dict__.update(
        forward_mode=_modules[_BATCH].ForwardMode.EXTEND,
        batch_size=requests,
        extend_prefix_lens=tensor(prefix_lens),
        extend_prefix_lens_cpu=prefix_lens,
        extend_seq_lens=tensor(_EXTEND),
        extend_seq_lens_cpu=_EXTEND,
        seq_lens=tensor([n + m for n, m in zip(prefix_lens, _EXTEND)]),
        token_to_kv_pool=object.__new__(_modules[_POOL].MLATokenToKVPool),
        mha_return_lse=True,
        # The engine's own figure is 128k tokens for the whole batch
        get_max_chunk_capacity=lambda: _CHUNK * requests,
        # Where a chunk's KV lies in the pool is no part of the bug: the scenario hands keys and values over itself
        prepare_chunked_kv_indices=lambda *where: None,
    )
    return batch
