"""MLA prefill of one batch through real vLLM code on the CPU: what the proofs about it share.

Real: the metadata builder with its chunk planning, both context loops, the prefill backend, the merge's Python entry, and
upstream's own masking where a release has it (its Triton kernel in the interpreter). On two ranks the context is sharded token
by token, as decode context parallelism does it. Emulated: the kernel (TRT-LLM ragged, FlashInfer's ragged wrapper, or
FlashAttention), the CUDA merge, the cache gathers, and the other rank.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import NoSuchPath, Proof, code_of, cumulative, device, replaced

MLA = "vllm.model_executor.layers.attention.mla_attention"
COMMON = "vllm.v1.attention.backends.mla.common"  # its home up to 0.14
RAGGED = "vllm.v1.attention.backends.mla.prefill.trtllm_ragged"  # the prefill backend's own class, from 0.21
FLASHINFER = "vllm.v1.attention.backends.mla.prefill.flashinfer"  # the same

HEADS, NOPE, ROPE, VDIM, LORA = 4, 128, 64, 128, 512
SCALE = (NOPE + ROPE) ** -0.5
PAGE, PAGES, CHUNK = 16, 6, 16  # tokens per page, pages per request, context tokens per request and chunk
#: A way to hold kv_b_proj: bfloat16 weight [out, in] -> (the layer, as the engine calls it; what it holds, in float64)
Projection = Callable[[Any], "tuple[Any, Any]"]


@dataclass(frozen=True)
class Batch:
    """Tokens of context and new tokens of each prefill request, after `decodes` requests that decode one token each.

    Requests without new tokens are what the engine pads a batch with.
    """

    context: tuple[int, ...]
    new: tuple[int, ...]
    decodes: int = 0

    @property
    def without_context(self) -> Any:
        """bool [tokens]: of the prefill tokens, those of requests without context."""
        import torch

        return torch.tensor([n == 0 for n in self.context]).repeat_interleave(torch.tensor(self.new))


def plain(weight: Any) -> tuple[Any, Any]:
    """kv_b_proj without quantisation, as a function."""

    def project(latent: Any) -> tuple:
        return latent @ weight.t(), None

    kv_b_proj: Any = project
    kv_b_proj.weight = weight
    return kv_b_proj, weight.double()


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
        cache = latent.new_zeros(len(latent), PAGES * PAGE, latent.shape[-1])
        cache[:, : latent.shape[1]] = latent
        return cache.view(-1, PAGE, latent.shape[-1])

    def gather(self, src_cache: Any, dst: Any, **where: Any) -> None:
        self.where = where
        emulators.gather_cache(src_cache, dst, **where)

    def all_gather(self, local: Any, dim: int) -> Any:
        import torch

        parts = [local, *(torch.zeros_like(local) for _ in self.caches[1:])]
        for shard, part in zip(self.caches[1:], parts[1:]):
            emulators.gather_cache(shard, part, **self.where)
        return torch.cat(parts, dim)

    def kv_gather(self, out: Any, local: Any) -> None:
        """The same as its own object's method, from 0.28."""
        out.copy_(self.all_gather(local, 0))


def _hyperparameters() -> Any:
    return SimpleNamespace(sm_scale=SCALE, window_left=-1, logits_soft_cap=None)


def _config() -> Any:
    attention = SimpleNamespace(trtllm_ragged_backend="trtllm-gen")
    return SimpleNamespace(attention_config=attention, kernel_config=SimpleNamespace(enable_jit_warmup=False))


def unpinned() -> Any:
    """Pinned memory needs a GPU: inside, torch is asked for ordinary memory."""
    import torch
    from torch.overrides import TorchFunctionMode

    class Unpinned(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            if function is torch.Tensor.pin_memory:
                return args[0]
            return function(*args, **{name: value for name, value in (kwargs or {}).items() if name != "pin_memory"})

    return Unpinned()


@contextmanager
def uninitialised(value: float) -> Any:
    """Inside, uninitialised floating-point memory from torch holds `value`."""
    import torch

    def filled(function: Any) -> Any:
        def allocate(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            return made.fill_(value) if made.is_floating_point() else made

        return allocate

    with ExitStack() as stack:
        for name in ("empty", "empty_like"):
            stack.enter_context(replaced(torch, name, filled(getattr(torch, name))))
        yield


def _workspace() -> Any:
    import torch

    return torch.zeros(1 << 16, dtype=torch.uint8, device=device())


class MlaPrefill(Proof):
    """A proof about MLA prefill: stand-ins for its kernels, and its outputs of a batch."""

    modules: tuple[str, ...] = (MLA, COMMON, RAGGED, FLASHINFER)
    may_lack = modules
    _flash: Any = staticmethod(emulators.flash_attn_varlen_func)  # the one that is called
    _pads_values = False  # whether it is FlashAttention 2, which needs values as wide as keys

    def prepare(self) -> None:
        """Put the stand-ins in place. Raises NoSuchPath for a release whose MLA prefill has no TRT-LLM ragged backend."""
        self.prepare_any()
        if not self.has_ragged():
            raise NoSuchPath("MLA prefill has no TRT-LLM ragged backend")

    def prepare_any(self) -> None:
        """The same for any release: FlashInfer's backend is in all of them."""
        import torch

        self.use()
        self.merge_on(cuda=True)
        ops: Any = torch.ops._C
        ops.merge_attn_states = emulators.MergeAttnStates(packed=self._packs_lse())
        shared = _workspace()
        workspaces = SimpleNamespace(get_simultaneous=lambda *specs: [shared for _ in specs])
        for module in (self.engine[name] for name in (RAGGED, FLASHINFER) if name in self.engine):
            module.current_workspace_manager = lambda: workspaces

    def prepare_flash(self) -> None:
        """For FlashAttention alone, which every release has, with the engine's own entry to the merge."""
        self.use_flash(-math.inf)

    def use_flash(self, empty_lse: float, pads_values: bool = False) -> None:
        """FlashAttention gives rows without keys this LSE from here on; with `pads_values` it is version 2."""
        self._flash = partial(emulators.flash_attn_varlen_func, empty_lse=empty_lse)
        self._pads_values = pads_values

    def merge_on(self, cuda: bool) -> None:
        """The engine's own entry chooses the CUDA op on a CUDA platform; else, as on an Intel GPU, its Triton kernel."""
        entry: Any = sys.modules[self.mla.merge_attn_states.__module__]
        entry.current_platform = SimpleNamespace(is_cuda=lambda: cuda, is_rocm=lambda: False, is_cpu=lambda: False)

    def has_ragged(self) -> bool:
        return RAGGED in self.engine or hasattr(self.mla.MLACommonImpl, "_run_prefill_context_chunk_trtllm_ragged")

    def returns_tokens_first(self) -> bool:
        """Whether FlashInfer's LSE goes on as it comes, [tokens, heads]; the merge reads [heads, tokens]."""
        return "transpose" not in self._names_of_fi()

    def _packs_lse(self) -> bool:
        return self.returns_tokens_first() or "contiguous" in self._names_of_fi()

    def _names_of_fi(self) -> tuple[str, ...]:
        if FLASHINFER in self.engine:
            return code_of(self.engine[FLASHINFER].FlashInferPrefillBackend.run_prefill_new_tokens).co_names
        return code_of(self.mla.MLACommonImpl._run_prefill_new_tokens_fi).co_names

    def converts(self) -> bool:
        """Whether the release brings a base-2 LSE to the natural base by itself."""
        return hasattr(self.engine.get(RAGGED), "log2_lse_to_ln")

    def use(self, undefined: bool = False, lse_base: float | None = None) -> Any:
        """Put new stand-ins for the TRT-LLM ragged kernel, which is returned, and FlashInfer's wrapper in place.

        For `undefined` see the kernel. Without an `lse_base` they have the one that the release expects: both return base 2,
        and releases that do not convert it have that as another bug.
        """
        import flashinfer.prefill

        base = lse_base or (2 if self.converts() else math.e)
        kernel = emulators.TrtllmRaggedAttention(base, undefined)
        flashinfer.prefill.trtllm_ragged_attention_deepseek = kernel
        wrapper = "BatchPrefillWithRaggedKVCacheWrapper"
        for module in (flashinfer, self.mla, self.engine.get(FLASHINFER)):
            if hasattr(module, wrapper):
                setattr(module, wrapper, lambda *args, **kwargs: emulators.RaggedWrapper(base))
        return kernel

    def outputs(
        self, seed: int, batch: Batch, backend: str = "trtllm_ragged", dtype: str = "bfloat16", projection: Projection = plain,
        ranks: tuple[int, ...] = (1, 2),
    ) -> tuple[Any, Any]:  # fmt: skip
        """(out, float64 reference) of the prefill tokens: through the plain loop, then through that of two ranks.

        The prefill backend is `trtllm_ragged`, FlashInfer's `fi`, or `fa`, FlashAttention.
        """
        import torch

        draw = torch.Generator().manual_seed(seed)
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(device(), getattr(torch, dtype))  # noqa: E731
        requests, tokens = batch.decodes + len(batch.new), sum(batch.new)
        latent = tensor(requests, PAGES * PAGE, LORA + ROPE)
        kv_b_proj, weight = projection(tensor(HEADS * (NOPE + VDIM), LORA) * LORA**-0.5)
        q, new = tensor(tokens, HEADS, NOPE + ROPE), tensor(tokens, LORA + ROPE)
        if not hasattr(self.mla.MLACommonImpl, "_context_parallel_compute_prefill_context"):  # up to 0.10.1
            ranks = (1,)
        outs = [self._prefill(q, new, kv_b_proj, _Ranks(latent, size), batch, backend) for size in ranks]

        at = cumulative(batch.new).tolist()
        reference = []
        for b, n in enumerate(batch.context):
            rows = slice(at[b], at[b + 1])
            both = torch.cat([latent[batch.decodes + b, :n], new[rows]]).double()
            up = (both[:, :LORA] @ weight.t()).view(-1, HEADS, NOPE + VDIM)
            k = torch.cat([up[..., :NOPE], both[:, None, LORA:].expand(-1, HEADS, -1)], dim=-1)
            reference.append(emulators.attention(q[rows], k, up[..., NOPE:], SCALE, causal=True)[0])
        return torch.cat(outs), torch.cat(reference * len(outs))

    def _prefill(self, q: Any, new: Any, kv_b_proj: Any, ranks: _Ranks, batch: Batch, backend: str) -> Any:
        """One layer's prefill as the engine runs it: build the batch's metadata, then attend."""
        import torch

        mla = self.mla
        mla.get_dcp_group = lambda: ranks
        mla.ops.gather_and_maybe_dequant_cache = mla.ops.cp_gather_cache = mla.ops.gather_cache = ranks.gather
        with unpinned():
            metadata = self._builder(ranks, batch, backend, q.dtype).build(0, self._batch(batch))
        impl, scale = self._impl(kv_b_proj, ranks, backend), torch.ones(1, device=device())
        args: tuple = q, new[:, :LORA], new[:, None, LORA:], ranks.caches[0], metadata, scale
        forward = impl.forward_mha if hasattr(impl, "forward_mha") else impl._forward_prefill
        if "k_scale" not in signature(forward).parameters:  # up to 0.10.0
            args = args[:-1]
        if "output" not in signature(forward).parameters:  # up to 0.11.2
            return forward(*args).view(-1, HEADS, VDIM)
        out = q.new_zeros(len(q), HEADS * VDIM)
        forward(*args, output=out)
        return out.view(-1, HEADS, VDIM)

    def _impl(self, kv_b_proj: Any, ranks: _Ranks, backend: str) -> Any:
        base: Any = self.mla.MLACommonImpl

        class Impl(base):
            """Decode is abstract there, and not run here."""

        Impl.__abstractmethods__ = frozenset()
        impl = object.__new__(Impl)

        impl.__dict__.update(
            num_heads=HEADS, kv_lora_rank=LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, qk_head_dim=NOPE + ROPE,
            v_head_dim=VDIM, scale=SCALE, kv_cache_dtype="auto", kv_b_proj=kv_b_proj, dcp_world_size=ranks.world_size,
            _use_flashinfer_concat_mla_k=False, _pad_v=self._pads_values, _workspace_buffer=_workspace(),
        )  # fmt: skip
        if RAGGED not in self.engine:  # captured at construction, as its __init__ does
            impl._run_prefill_context_chunk = getattr(impl, f"_run_prefill_context_chunk_{backend}")
            impl._run_prefill_new_tokens = getattr(impl, f"_run_prefill_new_tokens_{backend}")
            impl.flash_attn_varlen_func, self.mla.is_vllm_fa = self._called_flash, True
        return impl

    def _builder(self, ranks: _Ranks, batch: Batch, backend: str, dtype: Any) -> Any:
        import torch

        mla, size, rows = self.mla, ranks.world_size, CHUNK * sum(n > 0 for n in batch.context)
        builder = object.__new__(mla.MLACommonMetadataBuilder)
        builder.__dict__.update(
            device=torch.device(device()),
            model_config=SimpleNamespace(dtype=dtype, get_head_size=lambda: LORA + ROPE),
            vllm_config=_config(),
            metadata_cls=mla.MLACommonMetadata,
            _build_decode=lambda *args, **kwargs: None,  # nothing here decodes
            q_data_type=dtype,
            # What the engine computes for a CUDA device; its own figure is up to 64k rows
            aot_schedule=True, page_size=PAGE, chunked_prefill_workspace_size=rows,
            chunked_prefill_workspace=torch.zeros(
                rows + (rows // size if size > 1 else 0), LORA + ROPE, dtype=dtype, device=device()
            ),
            use_pcp=False, dcp_world_size=size, dcp_rank=0, dcp_local_block_size=1, dcp_virtual_block_size=size,
            cp_kv_cache_interleave_size=1, dcp_manager=ranks,
            # Which prefill backend: attributes up to 0.20, an object from 0.21
            prefill_metadata_cls=mla.FlashInferPrefillMetadata if backend == "fi" and RAGGED not in self.engine
            else mla.MLACommonPrefillMetadata,
            _workspace_buffer=_workspace(), _use_trtllm_ragged_prefill=backend == "trtllm_ragged", _use_cudnn_prefill=False,
            _use_fi_prefill=backend == "fi", _prefill_backend=self._backend(backend),
            # What FlashInfer's plan reads of it
            _fi_prefill_main=None, _fi_prefill_chunks=[], _global_hyperparameters=_hyperparameters(), num_heads=HEADS,
            kv_cache_spec=SimpleNamespace(num_kv_heads=1, dtype=dtype), chunked_prefill_enabled=True,
            mla_dims=SimpleNamespace(qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE, v_head_dim=VDIM),
        )  # fmt: skip
        return builder

    def _backend(self, name: str) -> Any:
        if RAGGED not in self.engine:
            return None
        if name == "fa":
            kind = self._flash_attn().FlashAttnPrefillBackend
        elif name == "fi":
            kind = self.engine[FLASHINFER].FlashInferPrefillBackend
        else:
            kind = self.engine[RAGGED].TrtllmRaggedPrefillBackend
        backend = kind(HEADS, SCALE, LORA, NOPE, ROPE, VDIM, _config())
        backend._global_hyperparameters = _hyperparameters()  # FlashInfer's would look for them in all layers
        return backend

    def _flash_attn(self) -> Any:
        """The module of the FlashAttention backend, from 0.21, which finds FlashAttention 3 on Hopper."""
        folder = RAGGED.rpartition(".")[0]
        entry: Any = import_module(f"{folder.rpartition('.mla')[0]}.fa_utils")
        # The backend's file imports this name, too, which 0.25 and later leave undefined on a CPU
        vars(entry).setdefault("compile_flash_attn_varlen_func_from_specs", None)
        flash: Any = import_module(f"{folder}.flash_attn")
        flash.current_platform = SimpleNamespace(
            is_cuda=lambda: True, is_xpu=lambda: False, get_device_capability=lambda: (9, 0)
        )
        flash.get_flash_attn_version = lambda **shape: 2 if self._pads_values else 3
        flash.flash_attn_varlen_func = self._called_flash
        return flash

    def _called_flash(self, *args: Any, **kwargs: Any) -> Any:
        return self._flash(*args, **kwargs)

    def _batch(self, batch: Batch) -> Any:
        import torch

        new, context = (1,) * batch.decodes + batch.new, (PAGE,) * batch.decodes + batch.context
        requests, starts = len(new), cumulative(new)
        totals = torch.tensor([n + m for n, m in zip(context, new)], dtype=torch.int32)
        common = object.__new__(self.mla.CommonAttentionMetadata)
        common.__dict__.update(
            num_reqs=requests, num_actual_tokens=sum(new), max_query_len=max(new), max_seq_len=int(totals.max()), causal=True,
            query_start_loc=starts.to(device()), query_start_loc_cpu=starts, slot_mapping=None,
            block_table_tensor=torch.arange(requests * PAGES, dtype=torch.int32, device=device()).view(requests, PAGES),
            seq_lens=totals.to(device()), seq_lens_cpu=totals, _seq_lens_cpu=totals, seq_lens_cpu_upper_bound=totals,
            dcp_local_seq_lens=totals.to(device()), dcp_local_seq_lens_cpu=totals,
        )  # fmt: skip
        return common

    @property
    def mla(self) -> Any:
        """The module of MLA attention in this release."""
        return self.engine[MLA if MLA in self.engine else COMMON]
