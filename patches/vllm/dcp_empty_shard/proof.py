"""Proof of vllm.dcp-empty-shard: a decode step of requests of which some have fewer tokens than there are ranks.

Real: the layer's decode from query to projected output, the backends' methods, the Triton backend's kernels and both combines
of the ranks, by all-gather and all-to-all (all Triton, in the interpreter). Emulated: CUTLASS's kernel, FlashInfer's and
TokenSpeed's (from where their backends return an LSE, 0.25.0 and 0.26.0), and the collectives: each rank is a thread. What a
combine leaves out by itself belongs to the control: nothing is corrected there.
"""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, observe, replaced
from attnfix.patches.lab.vllm import dcp_ranks
from attnfix.patches.lab.vllm.mla_decode import Decode, Ranks
from attnfix.patches.lab.vllm.mla_prefill import MlaPrefill

_BACKENDS = "vllm.v1.attention.backends.mla"
_TRITON, _CUTLASS, _FLASHINFER = (f"{_BACKENDS}.{name}_mla" for name in ("triton", "cutlass", "flashinfer"))
_TOKENSPEED, _ALL_TO_ALL = f"{_BACKENDS}.tokenspeed_mla", "vllm.v1.attention.ops.dcp_alltoall"
_MANAGERS = ("vllm.v1.attention.ops.dcp_utils", "vllm.v1.attention.ops.dcp")  # from 0.28

_RANKS, _HEADS, _NOPE, _ROPE, _VDIM, _LORA = 2, 2, 32, 64, 32, 512  # heads of each rank
_SCALE = (_NOPE + _ROPE) ** -0.5
_PAGE, _PAGES = 16, 8
_SHORT, _LONG = (1, 37, 1, 12), (21, 37, 12, 40)  # tokens of each request, the new one among them
_IMPLS = {_TRITON: "TritonMLAImpl", _CUTLASS: "CutlassMLAImpl", _FLASHINFER: "FlashInferMLAImpl"}


@contextmanager
def _on_host() -> Any:
    """Inside, memory that is asked of the GPU comes from the CPU, and the GPU has some multiprocessors."""
    import torch
    from torch.overrides import TorchFunctionMode

    class OnHost(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            return function(*args, **{**(kwargs or {}), **({"device": "cpu"} if "device" in (kwargs or {}) else {})})

    platform: Any = import_module("vllm.platforms").current_platform
    properties = SimpleNamespace(multi_processor_count=8)
    with OnHost(), replaced(torch.cuda, "get_device_properties", lambda device: properties):
        platform.num_compute_units = lambda device_id=0: properties.multi_processor_count
        yield


def _reference(latent: Any, q: Any, up_k: Any, up_v: Any, tokens: tuple[int, ...]) -> Any:
    """Attention in the head's own sizes, float64: keys and values are what the latent is projected to."""
    import torch

    found = []
    for b, n in enumerate(tokens):
        compressed, rope = latent[b, :n].double().split([_LORA, _ROPE], -1)
        k = torch.einsum("tl,hnl->thn", compressed, up_k.double())
        k = torch.cat([k, rope[:, None].expand(-1, len(up_k), -1)], -1)
        v = torch.einsum("tl,hlv->thv", compressed, up_v.double())
        found.append(emulators.attention(q[b : b + 1], k, v, _SCALE)[0][0])
    return torch.stack(found)


def _metadata(local: list[int], tokens: tuple[int, ...]) -> Any:
    """Of a step that only decodes, on a rank which holds so many tokens of each request."""
    import torch

    requests, starts = len(tokens), torch.arange(len(tokens) + 1, dtype=torch.int32)
    table = torch.arange(requests * _PAGES, dtype=torch.int32).view(requests, _PAGES)
    lens, all_lens = (torch.tensor(n, dtype=torch.int32) for n in (local, tokens))
    decode = SimpleNamespace(
        block_table=table, seq_lens=lens, dcp_tot_seq_lens=all_lens, query_start_loc=starts, max_query_len=1
    )
    return SimpleNamespace(
        num_actual_tokens=requests, num_decodes=requests, num_prefills=0, num_decode_tokens=requests, decode=decode,
        prefill=None, slot_mapping=starts[1:], query_start_loc=starts, seq_lens=all_lens, max_seq_len=max(tokens), causal=True,
    )  # fmt: skip


class Proof(MlaPrefill):
    modules = may_lack = (*MlaPrefill.modules, _TRITON, _TOKENSPEED, _ALL_TO_ALL, *_MANAGERS)
    measure = "relative error of the worst token"

    def prepare(self) -> None:
        self.prepare_flash()
        mla = self.mla
        manager = self._manager_module()
        combine_of: Any = manager or mla
        if not hasattr(combine_of, "cp_lse_ag_out_rs"):
            raise NoSuchPath("MLA knows no decode context parallelism")
        dcp_ranks.prepare(combine_of)
        mla.ops.concat_and_cache_mla = lambda *args, **kwargs: None  # the cache is full already
        with _on_host():  # these take memory from the GPU when they are imported
            self.engine[_CUTLASS] = import_module(_CUTLASS)
            if hasattr(mla.MLACommonImpl, "lse_base_on_e"):  # from 0.25: before, FlashInfer's backend returns no LSE
                self.engine[_FLASHINFER] = import_module(_FLASHINFER)

    def _manager_module(self) -> Any:
        return next((self.engine[name] for name in _MANAGERS if hasattr(self.engine.get(name), "MLADCPManager")), None)

    def scenario(self, seed: int) -> Observation:
        wrong = [self._run(seed, *case, _SHORT, _RANKS) for case in self._cases() if not self._is_right(*case)]
        return combine(*wrong, *self._tokenspeed(seed, _SHORT))

    def control(self, seed: int) -> Observation:
        """One rank, which has no LSE to combine; and what a combine leaves out by itself."""
        alone = [self._run(seed, backend, False, tokens, 1) for backend in self._backends() for tokens in (_SHORT, _LONG)]
        return combine(*alone, *(self._run(seed, *case, _SHORT, _RANKS) for case in self._cases() if self._is_right(*case)))

    def _backends(self) -> list[str]:
        """Those that return an LSE for the combine."""
        impls = {name: getattr(self.engine[name], _IMPLS[name]) for name in _IMPLS if name in self.engine}
        return [name for name, impl in impls.items() if impl.can_return_lse_for_decode]

    def _cases(self) -> list[tuple[str, bool]]:
        """(backend, whether the ranks combine by all-to-all, from 0.18 on). From 0.28 on the all-gather alone is run here."""
        ways = (False, True) if _ALL_TO_ALL in self.engine and self._manager_module() is None else (False,)
        return [(backend, way) for backend in self._backends() for way in ways]

    def _is_right(self, backend: str, all_to_all: bool) -> bool:
        """Triton's kernel gives an empty shard an LSE of -inf. A release that masks by itself is corrected nowhere."""
        return backend == _TRITON and not all_to_all and self._manager_module() is None and self._drops_nan()

    @cache
    def _drops_nan(self) -> bool:
        """What the engine's combine of gathered LSEs makes of an output of NaN that weighs nothing."""
        import torch

        ops: Any = sys.modules[self.mla.cp_lse_ag_out_rs.__module__]
        lses = torch.tensor([-math.inf, 0.0]).view(2, 1, 1)
        out, *_ = ops.correct_attn_out(torch.full((1, 1, 16), math.nan), lses, 0, ops.CPTritonContext())
        return bool(torch.isfinite(out).all())

    def _tokenspeed(self, seed: int, tokens: tuple[int, ...]) -> list[Observation]:
        impl = getattr(self.engine.get(_TOKENSPEED), "TokenspeedMLAImpl", None)
        if not getattr(impl, "can_return_lse_for_decode", False) or self._manager_module():
            return []
        return [observe(*Decode("tokenspeed_mla.TokenspeedMLABackend", tokens=tokens).run(seed))]

    def _run(self, seed: int, backend: str, all_to_all: bool, tokens: tuple[int, ...], ranks: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        # The Triton backend's LSE has the dtype of its queries
        dtype = torch.float32 if backend == _TRITON else torch.float16
        tensor = lambda *shape: torch.randn(*shape, generator=draw).to(dtype)  # noqa: E731
        heads, requests = ranks * _HEADS, len(tokens)
        latent, q = tensor(requests, max(tokens), _LORA + _ROPE), tensor(requests, heads, _NOPE + _ROPE)
        up_k, up_v = tensor(heads, _NOPE, _LORA) * _LORA**-0.5, tensor(heads, _LORA, _VDIM) * _LORA**-0.5
        group = Ranks(ranks)
        self.mla.get_dcp_group = lambda: group
        if manager := self._manager_module():
            manager.get_dcp_group = lambda: group
        if _ALL_TO_ALL in self.engine:
            self.engine[_ALL_TO_ALL].dist = group
        self._emulate(seed, backend)

        def one(rank: int) -> Any:
            mine = slice(rank * _HEADS, (rank + 1) * _HEADS)
            out = torch.zeros(requests, _HEADS * _VDIM, dtype=dtype)
            layer = self._layer(backend, ranks, rank, group, up_k[mine], up_v[mine])
            (layer.args[0] if isinstance(layer, partial) else layer.__self__).dcp_a2a = all_to_all
            local = [len(range(rank, n, ranks)) for n in tokens]
            cache = torch.zeros(requests, _PAGES * _PAGE, _LORA + _ROPE, dtype=dtype)
            for b, n in enumerate(local):
                cache[b, :n] = latent[b, rank : tokens[b] : ranks]
            new = latent.new_zeros(requests, _LORA)
            cache = cache.view(-1, _PAGE, _LORA + _ROPE)
            layer(q[:, mine], new, new[:, None, :_ROPE], cache, _metadata(local, tokens), output=out)
            return out.view(requests, _HEADS, _VDIM)

        outs = torch.cat(group.on_all(one), 1)
        return combine(*(observe(*token) for token in zip(outs, _reference(latent, q, up_k, up_v, tokens))))

    def _emulate(self, seed: int, backend: str) -> None:
        """Put the kernels in place that write nothing for a request without KV.

        Source: csrc/attention/mla/cutlass_sm100_mla of vLLM (each role returns where there is no tile); what was never written
        is drawn with the rest.
        """
        import torch

        def attend(q: Any, cache: Any, page_table: Any, seq_lens: Any, scale: float) -> tuple[Any, Any]:
            """q: [requests, heads, d]; cache: [pages, page size, d]. Output and natural LSE."""
            draw = torch.Generator().manual_seed(seed + 1)
            out, lse = (torch.rand(*shape, generator=draw) * 20 for shape in ((*q.shape[:2], _LORA), q.shape[:2]))
            for b, n in enumerate(seq_lens.tolist()):
                if n:
                    keys = cache[page_table[b].long()].flatten(0, 1)[:n, None].expand(-1, q.shape[1], -1)
                    one, one_lse = emulators.attention(q[b : b + 1], keys, keys[..., :_LORA], float(scale))
                    out[b], lse[b] = one[0].float(), one_lse[0].float()
            return out.to(q.dtype), lse

        def cutlass(out: Any, lse: Any, q_nope: Any, q_pe: Any, cache: Any, seq_lens: Any, page_table: Any, *_: Any) -> None:
            found = attend(torch.cat([q_nope, q_pe], -1), cache, page_table, seq_lens, _SCALE)
            for kept, new in zip((out, lse), found):
                if kept.numel():  # no LSE is asked for on one rank
                    kept[:, : new.shape[1]] = new

        def flashinfer(
            *, query: Any, kv_cache: Any, block_tables: Any, seq_lens: Any, bmm1_scale: float, return_lse: bool, **_: Any
        ) -> Any:
            out, lse = attend(query[:, 0], kv_cache[:, 0], block_tables, seq_lens, bmm1_scale)
            base = 1 if self.engine[_FLASHINFER].FlashInferMLAImpl.lse_base_on_e else math.log(2)
            return (out[:, None], lse / base) if return_lse else out[:, None]

        if backend == _CUTLASS:
            self.engine[_CUTLASS].ops.sm100_cutlass_mla_decode = cutlass
        elif backend == _FLASHINFER:
            module = self.engine[_FLASHINFER]
            module.trtllm_batch_decode_with_kv_cache_mla = flashinfer
            module._get_workspace_buffer, module._select_mla_decode_backend = (lambda *args: None), (lambda *args: None)

    def _layer(self, backend: str, ranks: int, rank: int, group: Any, up_k: Any, up_v: Any) -> Any:
        """The decode of one layer on one rank, as a function: its own method, up to 0.15 the backend's."""
        import torch

        mla, one = self.mla, torch.ones(())
        impl = object.__new__(getattr(self.engine[backend], _IMPLS[backend]))
        shared = dict(
            num_heads=_HEADS, qk_nope_head_dim=_NOPE, qk_rope_head_dim=_ROPE, kv_lora_rank=_LORA, v_head_dim=_VDIM,
            kv_cache_dtype="auto", q_pad_num_heads=None, is_aiter_triton_fp8_bmm_enabled=False, is_amx_bmm_enabled=False,
            is_aiter_triton_fp4_bmm_enabled=False, W_UK_T=up_k, W_UV=up_v, W_UK_T_dcp_qrep=None, dcp_a2a=False, use_pcp=False,
            _q_scale=one, _k_scale=one, _v_scale=one, _q_scale_float=1.0, _k_scale_float=1.0,
        )  # fmt: skip
        impl.__dict__.update(
            shared, scale=_SCALE, dcp_world_size=ranks, dcp_rank=rank, pcp_world_size=1,
            need_to_return_lse_for_decode=ranks > 1, _sm_count=4, _num_kv_splits=1, _use_old_cutlass_mla=False,
            bmm1_scale=None, bmm2_scale=None, _decode_out=None, _decode_lse=None,
            _workspace=SimpleNamespace(ensure_size=lambda *args: None, get_buf=lambda: None),
        )  # fmt: skip
        if not hasattr(getattr(mla, "MLAAttention", None), "forward_impl"):
            return partial(impl.forward, SimpleNamespace(**shared))
        layer = object.__new__(mla.MLAAttention)
        layer.__dict__.update(shared, impl=impl, prefill_backend=None, dcp_manager=self._manager(group, impl))
        return layer.forward_impl

    def _manager(self, group: Any, impl: Any) -> Any:
        """The object that combines, from 0.28, without its workspaces."""
        module = self._manager_module()
        if module is None:
            return None
        import torch

        manager = object.__new__(module.MLADCPManager)
        manager.group, manager.use_a2a, manager.padded_num_heads = group, False, None
        manager.combine = manager._init_combine(_HEADS, _LORA, torch.float32, impl.lse_base_on_e, False)
        manager.query_gather = manager._gather_query
        return manager

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        real = wrap.neutralize

        def output_alone(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
            real(out, None, seq_lens, queries)

        def everyone(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
            real(out, lse, seq_lens * 0, queries)

        def one_row_missed(out: Any, lse: Any, seq_lens: Any, queries: int) -> None:
            some = seq_lens.clone()
            some[(some == 0).nonzero()[:1]] = 1
            real(out, lse, some, queries)

        return {
            "the correction does nothing": replaced(wrap, "neutralize", lambda *args: None),
            "one row is missed": replaced(wrap, "neutralize", one_row_missed),
            "requests with KV are masked, too": replaced(wrap, "neutralize", everyone),
            "the LSE is left as it is": replaced(wrap, "neutralize", output_alone),
        }
