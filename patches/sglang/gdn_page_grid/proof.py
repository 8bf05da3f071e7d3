"""Proof of sglang.gdn-page-grid: prompts of a model with linear attention, and who continues them, with large pages.

A turn's first state is compared with the tokens that it continues. Real and played parts: `lab.sglang.tracked_states`. The
backend of the linear layers is real, too: it says which of the kernel's states are kept, and copies them. Played: the kernel,
whose states are those behind every 64 tokens of a prompt, or behind every page for FlashInfer's plan.
"""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, Observation, cumulative
from attnfix.patches.lab.sglang import tracked_states
from attnfix.patches.lab.sglang.engine import module

from . import wrap


class Case(NamedTuple):
    """Prompts of so many tokens that come at the same time; a second batch repeats `shared` tokens of each, and goes on."""

    prompts: tuple[int, ...]
    shared: int = 0
    page: int = 128
    backend: str = "gdn"
    overlap: bool = True
    checkpoints: bool = False
    where: str = ""


class Server(tracked_states.Server):
    def __init__(self, served: Any, case: Case):
        super().__init__(served, case.overlap)
        served.req_to_token_pool = self.pool
        kernels: Any = module("layers.attention.linear.utils")
        if hasattr(kernels, "resolve_linear_attn_backends"):  # 0.5.18 and later
            served.linear_attn_backends = kernels.resolve_linear_attn_backends()
        else:
            kernels.initialize_linear_attn_config(served.server_args)
        name = case.backend
        self.backend = served.backend(f"linear.{name}_backend:{name.upper()}AttnBackend")
        self.every = case.page if case.checkpoints else wrap.CHUNK
        if case.checkpoints:
            self.backend.kernel_dispatcher.extend_kernel = SimpleNamespace(uses_state_checkpoints=True)

    def _track(self, batch: Any, lengths: list[int]) -> None:
        if not batch.forward_mode.is_extend():
            return super()._track(batch, lengths)
        import torch

        done, new = list(batch.prefix_lens), list(batch.extend_lens)
        count = lambda values: torch.tensor(values, dtype=torch.int32)  # noqa: E731
        forward = self.served.forward_batch(
            "EXTEND", batch_size=len(new), input_ids=count([0] * sum(new)), req_pool_indices=batch.req_pool_indices,
            seq_lens=batch.seq_lens, seq_lens_sum=sum(lengths), out_cache_loc=batch.out_cache_loc,
            seq_lens_cpu=batch.seq_lens_cpu, extend_num_tokens=sum(new), extend_seq_lens=count(new), extend_seq_lens_cpu=new,
            extend_prefix_lens=count(done), extend_prefix_lens_cpu=done, extend_start_loc=cumulative(new)[:-1],
            mamba_track_mask=batch.mamba_track_mask, mamba_track_indices=batch.mamba_track_indices,
            mamba_track_seqlens=batch.mamba_track_seqlens,
        )  # fmt: skip
        self.backend.init_forward_metadata(forward)
        metadata, kept = self.backend.forward_metadata, []
        for request, slot, begin, end in zip(batch.reqs, metadata.mamba_cache_indices.tolist(), done, lengths, strict=True):
            text = self.texts[request.rid]
            self._write(slot, tracked_states.seen(text[:end]))
            first = begin if self.every == wrap.CHUNK else begin + self.every
            last = end if self.every == wrap.CHUNK else end + 1
            kept += [tracked_states.seen(text[:at]) for at in range(first, last, self.every)]
        for states in self.states:
            h = states.new_zeros(1, len(kept), *states.shape[1:])
            h.flatten(2)[0, :, :2] = states.new_tensor(kept).view(-1, 2)
            self.backend._track_mamba_state_extend(forward, h, states, metadata)


_BACKENDS = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_GDN, _KDA = (f"sglang.srt.layers.attention.linear.{name}_backend" for name in ("gdn", "kda"))
_PLANNED = f"{_GDN}:GDNKernelDispatcher.extend_uses_state_checkpoints"
_MIXED = (128, 130, 200, 330)


class Proof(Cases):
    modules = ("sglang.srt.layers.quantization", _BACKENDS, _GDN, _KDA)
    may_lack = (_BACKENDS, _GDN, _KDA)
    kernel = "emulated"
    measure = "share of next turns that continue from a state of other tokens"
    needs = f"{_GDN}:GDNAttnBackend"
    absent = "linear attention has no backend of its own"
    bug = (
        Case(_MIXED), Case((192, 300, 129), overlap=False), Case((300, 390), shared=200), Case((70, 470, 256), page=256),
        Case(_MIXED, shared=140, backend="kda", where=f"{_KDA}:KDAAttnBackend.__init__: conv_states_shape"),
    )  # fmt: skip
    spared = (
        Case((128, 256, 100)), Case(_MIXED, page=64, shared=140), Case(_MIXED, page=1), Case(_MIXED, page=16, overlap=False),
        Case(_MIXED, shared=200, checkpoints=True, where=_PLANNED),
    )  # fmt: skip
    around = {"Set `--page-size 64` or less": {"bug": tuple(case._replace(page=64) for case in bug)}}
    broken = {
        "the correction does nothing": (wrap.sources, lambda real, batch, page: real(batch, page)[:0]),
        "requests before are counted by pages": (wrap.sources, lambda real, batch, page: (
            real(batch, page) - real(batch, page) % 2
        )),
    }  # fmt: skip

    def run(self, case: Case, seed: int) -> Observation:
        draw = random.Random(seed)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: E731
        flags = ("--page-size", str(case.page), "--mamba-track-interval", str(max(case.page, 64)))
        served = tracked_states.serve(*flags, config=tracked_states.QWEN3_NEXT)
        server = Server(served, case)
        for tokens in case.prompts:
            server.arrive(text(tokens), text(2))
        while server.step():
            pass
        for _ in range(2 if case.shared else 0):
            for said in list(server.texts.values())[: len(case.prompts)]:
                server.arrive(said[: case.shared] + text(70), text(2))
            while server.step():
                pass
        for said in list(server.texts.values()):
            server.arrive(said + text(3), text(2))
        while server.step():
            pass
        told = server.continued
        return Observation(sum(not right for _, right in told) / max(len(told), 1), repr(told))
