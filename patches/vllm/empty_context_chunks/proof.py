"""Proof of vllm.empty-context-chunks: MLA prefill of four requests with unequal cached lengths, on one rank and on two.

Real: the metadata builder with its chunk planning, both context loops, the prefill backend, upstream's own masking where a
release has it (its Triton kernel in the interpreter), and the final merge's call. On two ranks the context is sharded token by
token, as decode context parallelism does it. Emulated: the TRT-LLM ragged kernel, the CUDA merge, the cache gathers, and the
other rank.
"""

from __future__ import annotations

import math
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches import emulators
from attnfix.patches.scenario import NoSuchPath, Observation, cumulative, fixup_sabotages, observe

_MLA = "vllm.model_executor.layers.attention.mla_attention"
_COMMON = "vllm.v1.attention.backends.mla.common"  # its home up to 0.14
_RAGGED = "vllm.v1.attention.backends.mla.prefill.trtllm_ragged"  # the prefill backend's own class, from 0.21
MODULES = (_MLA, _COMMON, _RAGGED)
MAY_LACK = MODULES
KERNEL = "emulated"
sabotages = fixup_sabotages

_HEADS, _NOPE, _ROPE, _VDIM, _LORA = 4, 128, 64, 128, 512
_SCALE = (_NOPE + _ROPE) ** -0.5
_PAGE, _PAGES, _CHUNK = 16, 6, 16  # tokens per page, pages per request, context tokens per request and chunk
_NEW = [3, 2, 4, 5]
# Those with context come first, as the engine's own runner orders a batch. The second ends in the first chunk, the third in
# the next, one has no context at all. A single token of context also leaves the second rank without any.
_UNEQUAL = [70, 1, 20, 0]
_EQUAL = [70, 65, 79, 80]  # five chunks for everyone: the bug is not touched
_modules: dict[str, Any] = {}


def prepare(modules: dict[str, Any]) -> None:
    import flashinfer.prefill

    _modules.update(modules)
    mla, ragged = _mla(), modules.get(_RAGGED)
    if ragged is None and not hasattr(mla.MLACommonImpl, "_run_prefill_context_chunk_trtllm_ragged"):
        raise NoSuchPath("MLA prefill has no TRT-LLM ragged backend")
    # The kernel returns base-2 LSE. Releases that do not convert it have that as another bug: they get what they expect.
    base = 2 if hasattr(ragged, "log2_lse_to_ln") else math.e
    flashinfer.prefill.trtllm_ragged_attention_deepseek = emulators.TrtllmRaggedAttention(base)
    mla.merge_attn_states = emulators.merge_attn_states
    if ragged:
        workspaces = SimpleNamespace(get_simultaneous=lambda *specs: [_workspace() for _ in specs])
        ragged.current_workspace_manager = lambda: workspaces


def scenario(seed: int) -> Observation:
    return _run(seed, _UNEQUAL)


def control(seed: int) -> Observation:
    return _run(seed, _EQUAL)


def _run(seed: int, context_lens: list[int]) -> Observation:
    """The plain loop and the decode-context-parallel loop on the same requests; both must give the reference."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    tensor = lambda *shape: torch.randn(*shape, generator=draw).bfloat16()  # noqa: E731
    latent = tensor(len(context_lens), _PAGES * _PAGE, _LORA + _ROPE)
    weight = tensor(_HEADS * (_NOPE + _VDIM), _LORA) * _LORA**-0.5
    q, new = tensor(sum(_NEW), _HEADS, _NOPE + _ROPE), tensor(sum(_NEW), _LORA + _ROPE)
    outs = [_prefill(q, new, weight, _Ranks(latent, size), context_lens) for size in (1, 2)]

    at = cumulative(_NEW).tolist()
    reference = []
    for b, n in enumerate(context_lens):
        rows = slice(at[b], at[b + 1])
        both = torch.cat([latent[b, :n], new[rows]]).double()
        up = (both[:, :_LORA] @ weight.double().t()).view(-1, _HEADS, _NOPE + _VDIM)
        k = torch.cat([up[..., :_NOPE], both[:, None, _LORA:].expand(-1, _HEADS, -1)], dim=-1)
        reference.append(emulators.attention(q[rows], k, up[..., _NOPE:], _SCALE, causal=True)[0])
    return observe(torch.cat(outs), torch.cat(reference * len(outs)))


def _prefill(q: Any, new: Any, weight: Any, ranks: _Ranks, context_lens: list[int]) -> Any:
    """One layer's prefill as the engine runs it: build the batch's metadata, then attend."""
    import torch

    mla = _mla()
    mla.get_dcp_group = lambda: ranks
    mla.ops.gather_and_maybe_dequant_cache = mla.ops.cp_gather_cache = ranks.gather
    with _unpinned():
        metadata = _builder(ranks, context_lens).build(0, _batch(context_lens))
    impl, scale = _impl(weight, ranks), torch.ones(1)
    args = q, new[:, :_LORA], new[:, None, _LORA:], ranks.caches[0], metadata, scale
    forward = impl.forward_mha if hasattr(impl, "forward_mha") else impl._forward_prefill
    if "output" not in signature(forward).parameters:  # up to 0.11.2
        return forward(*args).view(-1, _HEADS, _VDIM)
    out = torch.zeros(len(q), _HEADS * _VDIM, dtype=q.dtype)
    forward(*args, output=out)
    return out.view(-1, _HEADS, _VDIM)


class _Ranks:
    """The group of `size` ranks as its first rank sees it. Token i of a request lies on rank i % size, as its i // size-th.

    What the others would gather is read from their caches with the first rank's own arguments: those are the same on all.
    """

    rank_in_group = 0

    def __init__(self, latent: Any, size: int):
        self.world_size = size
        self.caches = [self._paged(latent[:, rank::size]) for rank in range(size)]

    @staticmethod
    def _paged(latent: Any) -> Any:
        import torch

        cache = torch.zeros(len(latent), _PAGES * _PAGE, latent.shape[-1], dtype=latent.dtype)
        cache[:, : latent.shape[1]] = latent
        return cache.view(-1, _PAGE, latent.shape[-1])

    def gather(self, src_cache: Any, dst: Any, **where: Any) -> None:
        self.where = where
        emulators.gather_cache(src_cache, dst, **where)

    def all_gather(self, local: Any, dim: int) -> Any:
        import torch

        parts = [local, *(torch.zeros_like(local) for _ in self.caches[1:])]
        for cache, part in zip(self.caches[1:], parts[1:]):
            emulators.gather_cache(cache, part, **self.where)
        return torch.cat(parts, dim)

    def kv_gather(self, out: Any, local: Any) -> None:
        """The same as its own object's method, from 0.28."""
        out.copy_(self.all_gather(local, 0))


def _impl(weight: Any, ranks: _Ranks) -> Any:
    base: Any = _mla().MLACommonImpl

    class Impl(base):
        """Decode is abstract there, and not run here."""

    Impl.__abstractmethods__ = frozenset()
    impl = object.__new__(Impl)

    def project(latent: Any) -> tuple:
        return latent @ weight.t(), None

    kv_b_proj: Any = project
    kv_b_proj.weight = weight
    impl.__dict__.update(
        num_heads=_HEADS, kv_lora_rank=_LORA, qk_nope_head_dim=_NOPE, qk_rope_head_dim=_ROPE, qk_head_dim=_NOPE + _ROPE,
        v_head_dim=_VDIM, scale=_SCALE, kv_cache_dtype="auto", kv_b_proj=kv_b_proj, dcp_world_size=ranks.world_size,
        _use_flashinfer_concat_mla_k=False, _pad_v=False, _workspace_buffer=_workspace(),
    )  # fmt: skip
    if _RAGGED not in _modules:  # captured at construction, as its __init__ does
        impl._run_prefill_context_chunk = impl._run_prefill_context_chunk_trtllm_ragged
        impl._run_prefill_new_tokens = impl._run_prefill_new_tokens_trtllm_ragged
    return impl


def _builder(ranks: _Ranks, context_lens: list[int]) -> Any:
    import torch

    mla, size, rows = _mla(), ranks.world_size, _CHUNK * sum(n > 0 for n in context_lens)
    builder = object.__new__(mla.MLACommonMetadataBuilder)
    builder.__dict__.update(
        device=torch.device("cpu"),
        model_config=SimpleNamespace(dtype=torch.bfloat16, get_head_size=lambda: _LORA + _ROPE),
        vllm_config=_config(),
        metadata_cls=mla.MLACommonMetadata,
        q_data_type=torch.bfloat16,
        # What the engine computes for a CUDA device; its own figure is up to 64k rows
        aot_schedule=True, page_size=_PAGE, chunked_prefill_workspace_size=rows,
        chunked_prefill_workspace=torch.zeros(rows + (rows // size if size > 1 else 0), _LORA + _ROPE, dtype=torch.bfloat16),
        use_pcp=False, dcp_world_size=size, dcp_rank=0, dcp_local_block_size=1, dcp_virtual_block_size=size,
        cp_kv_cache_interleave_size=1, dcp_manager=ranks,
        # Which prefill backend: attributes up to 0.20, an object from 0.21
        prefill_metadata_cls=mla.MLACommonPrefillMetadata, _workspace_buffer=_workspace(),
        _use_trtllm_ragged_prefill=True, _use_cudnn_prefill=False, _use_fi_prefill=False, _prefill_backend=_backend(),
    )  # fmt: skip
    return builder


def _backend() -> Any:
    if _RAGGED not in _modules:
        return None
    return _modules[_RAGGED].TrtllmRaggedPrefillBackend(_HEADS, _SCALE, _LORA, _NOPE, _ROPE, _VDIM, _config())


def _config() -> Any:
    return SimpleNamespace(attention_config=SimpleNamespace(trtllm_ragged_backend="trtllm-gen"))


def _batch(context_lens: list[int]) -> Any:
    import torch

    requests, starts = len(_NEW), cumulative(_NEW)
    totals = torch.tensor([n + m for n, m in zip(context_lens, _NEW)], dtype=torch.int32)
    batch = object.__new__(_mla().CommonAttentionMetadata)
    batch.__dict__.update(
        num_reqs=requests, num_actual_tokens=sum(_NEW), max_query_len=max(_NEW), max_seq_len=int(totals.max()), causal=True,
        query_start_loc=starts, query_start_loc_cpu=starts, slot_mapping=None,
        block_table_tensor=torch.arange(requests * _PAGES, dtype=torch.int32).view(requests, _PAGES),
        seq_lens=totals, seq_lens_cpu=totals, _seq_lens_cpu=totals, seq_lens_cpu_upper_bound=totals,
    )  # fmt: skip
    return batch


def _unpinned() -> Any:
    """Pinned memory needs a GPU: inside, torch is asked for ordinary memory."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Unpinned(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.pin_memory:
                return args[0]
            return function(*args, **{name: value for name, value in (kwargs or {}).items() if name != "pin_memory"})

    return Unpinned()


def _workspace() -> Any:
    import torch

    return torch.zeros(16, dtype=torch.uint8)


def _mla() -> Any:
    return _modules[_MLA if _MLA in _modules else _COMMON]
