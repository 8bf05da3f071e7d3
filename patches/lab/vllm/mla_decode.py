"""One decode step of an MLA layer on ranks that share the KV, from projected query to projected output.

    step = Decode("triton_mla.TritonMLABackend", tokens=(1, 37, 12))
    out, reference = step.run(seed)         # [requests, heads, v_head_dim] each, the reference in float64

Real: the layers, their backend and metadata builder by their constructors from a real config (`construction`), the quantisation
of queries to FP8, Triton's decode kernel and the combine of the ranks (both in Triton's interpreter). Emulated: the kernels of
CUTLASS, FlashInfer and TokenSpeed at their public entry points, their workspaces, and the collectives: each rank is a thread.
The cache is filled here, and the engine's own write of the new token is left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.vllm import dcp_ranks

from . import kernels
from .construction import MLA, Worker, _set

__all__ = ["Decode", "Empty"]

_BACKENDS, _MLA = "vllm.v1.attention.backends.mla", "vllm.model_executor.layers.attention.mla_attention"
_HEADS, _NOPE, _ROPE, _VDIM, _LORA = 4, 128, 64, 128, 512
_SCALE = (_NOPE + _ROPE) ** -0.5
_MODEL = {**MLA, "num_attention_heads": _HEADS, "num_key_value_heads": _HEADS}
_PAGES = {"cutlass_mla": 128}  # tokens of a page, where the kernel takes no page of 32
_ALL_GATHER = "ag_rs"


class Empty:
    """What a kernel leaves in the rows of requests without KV: "garbage" (finite), "nan" or, for the LSE, "-inf"."""

    def __init__(self, out: str = "garbage", lse: str = "garbage"):
        self.out, self.lse = out, lse


class Ranks(dcp_ranks.Group):
    """The same group with what construction and an all-to-all ask of it."""

    device_group = None

    def be(self, rank: int) -> None:
        """This thread is that rank."""
        self._here.rank = rank

    def all_to_all_single(self, received: Any, sent: Any, group: Any = None, async_op: bool = False) -> Any:
        import torch

        mine = self.rank_in_group
        received.copy_(torch.cat([each.chunk(self.world_size)[mine] for each in self._exchange(sent)]))
        return SimpleNamespace(wait=lambda: None)


class Decode:
    """`tokens` of each request, the new one among them; `backend` under `vllm.v1.attention.backends.mla`.

    combine: the value of --dcp-comm-backend, which releases from 0.18 have. empty: what an emulated kernel leaves.
    """

    def __init__(
        self, backend: str, *, tokens: Sequence[int], ranks: int = 2, combine: str = _ALL_GATHER, empty: Empty | None = None,
        **more: Any,
    ):  # fmt: skip
        self.backend, self.tokens, self.size, self.combine = backend, tuple(tokens), ranks, combine
        kernels.stand_in()
        with kernels.on_cpu(), ExitStack() as stack:  # some ask the GPU, and take its memory, when they are imported
            for name, answer in kernels.gpu_answers((10, 0)).items():
                stack.enter_context(_set(_platform(), name, answer))
            self.module: Any = import_module(f"{_BACKENDS}.{backend.partition('.')[0]}")
        self.page, self.empty, self.more = _PAGES.get(backend.partition(".")[0], 32), empty or Empty(), more
        if backend.startswith("tokenspeed"):  # takes FP8 alone, and returns bfloat16
            self.more = {"kv_cache_dtype": "fp8", "dtype": "bfloat16", **more}
        self.more.setdefault("dtype", "float16")

    def run(self, seed: int) -> tuple[Any, Any]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        dtype = getattr(torch, self.more["dtype"])
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(dtype)  # noqa: E731
        latent, q = tensor(len(self.tokens), max(self.tokens), _LORA + _ROPE), tensor(len(self.tokens), _HEADS, _NOPE + _ROPE)
        weight = tensor(_HEADS, _NOPE + _VDIM, _LORA) * _LORA**-0.5
        if self._fp8:  # what the cache holds is exact; queries are small, so what is lost of them changes no weights
            latent, q = latent.to(torch.float8_e4m3fn).to(dtype), q / 16
        with self._stand_ins(seed) as group:
            steps = [self._rank(group, rank, latent, q, weight) for rank in range(self.size)]
            with torch.compiler.set_stance("force_eager"):
                outs = group.on_all(lambda rank: steps[rank]())
        return torch.cat(outs, 1), self._reference(latent, q, weight)

    @property
    def _fp8(self) -> bool:
        return self.more.get("kv_cache_dtype") == "fp8"

    def _rank(self, group: Ranks, rank: int, latent: Any, q: Any, weight: Any) -> Any:
        """The step on one rank, as a function."""
        import torch

        heads = _HEADS // self.size
        mine = slice(rank * heads, (rank + 1) * heads)
        combine: dict[str, Any] = {} if self.combine == _ALL_GATHER else {"parallel": {"dcp_comm_backend": self.combine}}
        group.be(rank)
        worker = Worker(
            _MODEL, backend=f"mla.{self.backend}", rank=rank, tp=self.size, dcp=self.size, page_size=self.page,
            dcp_group=group if self.size > 1 else None, **combine, **self.more,
        )  # fmt: skip
        with worker:
            layer = worker.layer()
            holder = layer if hasattr(layer, "kv_b_proj") else layer.impl  # up to 0.15
            holder.kv_b_proj.weight.data = weight[mine].reshape(-1, _LORA).contiguous()
            holder.process_weights_after_loading(weight.dtype)
            metadata = worker.builder([layer]).build(0, worker.batch([n - 1 for n in self.tokens], [1] * len(self.tokens)))
        pages = metadata.decode.block_table.shape[1]
        cache = torch.zeros(len(self.tokens), pages * self.page, _LORA + _ROPE, dtype=q.dtype)
        for b, n in enumerate(self.tokens):
            held = latent[b, rank : n : self.size]
            cache[b, : len(held)] = held
        cache = cache.view(-1, self.page, _LORA + _ROPE)
        if self._fp8:
            cache = cache.to(torch.float8_e4m3fn).view(torch.uint8)
        new, out = latent[:, 0, :_LORA], torch.zeros(len(self.tokens), heads * _VDIM, dtype=q.dtype)
        forward = layer.forward_impl if holder is layer else partial(layer.impl.forward, layer)

        def step() -> Any:
            group.be(rank)
            forward(q[:, mine], new, latent[:, :1, _LORA:], cache, metadata, output=out)
            return out.view(len(self.tokens), heads, _VDIM)

        return step

    def _reference(self, latent: Any, q: Any, weight: Any) -> Any:
        """Attention in the head's own sizes, float64: keys and values are what the latent is projected to."""
        import torch

        up_k, up_v = weight.double().split([_NOPE, _VDIM], 1)
        found = []
        for b, n in enumerate(self.tokens):
            compressed, rope = latent[b, :n].double().split([_LORA, _ROPE], -1)
            k = torch.einsum("tl,hnl->thn", compressed, up_k)
            k = torch.cat([k, rope[:, None].expand(-1, _HEADS, -1)], -1)
            v = torch.einsum("tl,hvl->thv", compressed, up_v)
            found.append(emulators.attention(q[b : b + 1], k, v, _SCALE)[0][0])
        return torch.stack(found)

    @contextmanager
    def _stand_ins(self, seed: int) -> Iterator[Ranks]:
        mla: Any = kernels.found(_MLA) or import_module(f"{_BACKENDS}.common")  # up to 0.15
        group = Ranks(self.size)
        with ExitStack() as stack:
            set_ = lambda owner, name, value: stack.enter_context(replaced(owner, name, value))  # noqa: E731
            manager = _manager()
            combine_of = manager or mla
            dcp_ranks.prepare(combine_of)
            for module in filter(None, (mla, manager)):
                if hasattr(module, "get_dcp_group"):
                    set_(module, "get_dcp_group", lambda: group)
            if all_to_all := sys.modules.get("vllm.v1.attention.ops.dcp_alltoall"):
                set_(all_to_all, "dist", group)
            set_(mla.ops, "concat_and_cache_mla", lambda *args, **kwargs: None)
            self._kernels(set_, seed)
            yield group

    def _kernels(self, set_: Any, seed: int) -> None:
        name = self.backend.partition(".")[0]
        attend = _Attend(seed, self.empty)
        if name == "cutlass_mla":
            set_(self.module.ops, "sm100_cutlass_mla_decode", attend.cutlass)
            set_(type(self.module.g_sm100_workspace), "ensure_size", lambda *args: None)
        elif name == "flashinfer_mla":
            attend.base = 1.0 if self.module.FlashInferMLAImpl.lse_base_on_e else math.log(2)
            set_(self.module, "trtllm_batch_decode_with_kv_cache_mla", attend.flashinfer)
            for helper in ("_get_workspace_buffer", "_get_multi_ctas_kv_counter_buffer"):
                set_(self.module, helper, lambda *args: None) if hasattr(self.module, helper) else None
            for helper in ("get_device_sm_count", "get_trtllm_gen_multi_ctas_kv_counter_bytes"):
                set_(self.module, helper, lambda *args: 1) if hasattr(self.module, helper) else None
        elif name == "tokenspeed_mla":
            package = ModuleType("tokenspeed_mla")
            vars(package).update(
                tokenspeed_mla_decode=attend.tokenspeed, get_num_sm=lambda device: 1,
                warmup_compile_prefill=lambda **shape: None,
            )  # fmt: skip
            sys.modules["tokenspeed_mla"] = package


def _manager() -> Any:
    """The module of the object that combines, from 0.28."""
    modules = map(kernels.found, ("vllm.v1.attention.ops.dcp_utils", "vllm.v1.attention.ops.dcp"))
    return next((module for module in modules if hasattr(module, "MLADCPManager")), None)


def _platform() -> type:
    return type(import_module("vllm.platforms").current_platform)


class _Attend:
    """Decode attention over a paged latent cache; rows without KV are left as `empty` says.

    Sources: CUTLASS's roles return where there is no tile (csrc/attention/mla/cutlass_sm100_mla of vLLM). FlashInfer's CuTe DSL
    kernel writes nothing for no tiles (flashinfer 0.6.16.post3, cute_dsl/attention/monolithic/mla_decode_fp16.py, `if
    k_tile_count > 0`); of trtllm-gen's, FlashInfer PR 4975 says that it writes an LSE of -inf and no output. TokenSpeed's is
    CuTe DSL, too, into an LSE of zeros (tokenspeed-mla 0.1.8, mla_decode.py).
    """

    base = 1.0

    def __init__(self, seed: int, empty: Empty):
        self.seed, self.empty = seed, empty

    def __call__(self, q: Any, cache: Any, page_table: Any, seq_lens: Any, scale: float) -> tuple[Any, Any]:
        """q: [requests, heads, d]; cache: [pages, page size, d]. Output and natural LSE, float32."""
        import torch

        draw = torch.Generator().manual_seed(self.seed + 1)
        out, lse = (torch.rand(*shape, generator=draw) * 20 for shape in ((*q.shape[:2], _LORA), q.shape[:2]))
        if self.empty.out == "nan":
            out.fill_(math.nan)
        if self.empty.lse != "garbage":
            lse.fill_(float(self.empty.lse))
        for b, n in enumerate(seq_lens.tolist()):
            if n:
                keys = cache[page_table[b].long()].flatten(0, 1)[:n, None].float().expand(-1, q.shape[1], -1)
                one, one_lse = emulators.attention(q[b : b + 1].float(), keys, keys[..., :_LORA], float(scale))
                out[b], lse[b] = one[0].float(), one_lse[0].float()
        return out, lse

    def cutlass(self, out: Any, lse: Any, q_nope: Any, q_pe: Any, cache: Any, seq_lens: Any, table: Any, *_: Any) -> None:
        import torch

        found = self(torch.cat([q_nope, q_pe], -1), cache, table, seq_lens, _SCALE)
        for kept, new in zip((out, lse), found):
            if kept.numel():  # no LSE is asked for on one rank
                kept[:, : new.shape[1]] = new.to(kept.dtype)

    def flashinfer(
        self, *, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, bmm1_scale: float, return_lse: bool = False,
        **_: Any,
    ) -> Any:  # fmt: skip
        out, lse = self(query[:, 0], kv_cache[:, 0], block_tables, seq_lens, bmm1_scale)
        out = out[:, None].to(query.dtype)
        return (out, lse / self.base) if return_lse else out

    def tokenspeed(
        self, *, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, softmax_scale: float, output_scale: float,
        return_lse: bool, **_: Any,
    ) -> Any:  # fmt: skip
        import torch

        out, lse = self(query[:, 0], kv_cache, block_tables, seq_lens, softmax_scale)
        if self.empty.lse == "garbage":  # its memory is allocated as zeros
            lse = torch.where((seq_lens == 0)[:, None], 0.0, lse)
        out = (out * output_scale)[:, None].to(torch.bfloat16)
        return (out, (lse / math.log(2))[:, None]) if return_lse else out
