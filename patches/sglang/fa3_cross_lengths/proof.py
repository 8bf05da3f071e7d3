"""Proof of sglang.fa3-cross-lengths: batches of an encoder-decoder model whose requests have encoders of different lengths.

Real: construction of `FlashAttentionBackend`, its metadata with and without CUDA graphs, and its forward. FlashAttention 3 is
emulated. Judged are a layer of self attention and one of cross attention: in prefill, behind a cached prefix, and in decode.
"""

from __future__ import annotations

import importlib
import math
from copy import copy
from types import SimpleNamespace
from typing import Any

from attnfix.patches.lab import emulators, proof
from attnfix.patches.lab.proof import Observation, combine, cumulative, observe, replaced
from attnfix.patches.lab.sglang import flash_attention
from attnfix.patches.lab.sglang.flash_attention import BACKEND, CONFIG, TRANSLATOR, Options

_BATCH = "sglang.srt.model_executor.forward_batch_info"

_SIZES = (2, 4)  # captured batch sizes: batches of 3 are padded
_ROOM, CONTEXT = max(_SIZES), 48  # requests, tokens of each: its encoder's and its text's
_COLUMNS = 2 * CONTEXT  # of the page table: releases from 0.5.16 on gather the whole context behind an encoder
_HEADS, _DIM = 2, 16


class Model:
    """A backend, and the KV of requests: encoder first, text behind it. Row 0 of the page table, which has `columns`, belongs
    to padding. Without `encoders`, the model has no encoder, and those of its requests count no tokens."""

    padding_encoder = 0  # tokens of a padding row's encoder

    def __init__(self, modules: dict[str, Any], draw: Any, columns: int = _COLUMNS, *, encoders: bool = True):
        import torch

        self.modules, self.draw, self.encoders = modules, draw, encoders
        slots = torch.randperm((_ROOM + 1) * columns, generator=draw)
        self.req_to_token = slots.view(_ROOM + 1, columns).int()
        self.kv = tuple(torch.randn(len(slots), _HEADS, _DIM, generator=draw).half() for _ in "kv")
        self.pool = SimpleNamespace(get_kv_buffer=lambda layer_id: self.kv, page_size=1)
        args = Options(kv_cache_dtype="auto", speculative_num_draft_tokens=None, speculative_algorithm=None,
                       deterministic=Options(), tp_size=1, attn_tp_size=1, disable_cuda_graph=False)  # fmt: skip
        model = {
            "is_encoder_decoder": encoders, "context_len": CONTEXT, "head_dim": _DIM, "get_num_kv_heads": lambda *_: _HEADS,
            "hf_text_config": SimpleNamespace(num_attention_heads=_HEADS),
        }  # fmt: skip
        self.backend = flash_attention.constructed(modules, self.req_to_token, self.pool, args, model)
        self.graphs: dict[int, Any] = {}

    def capture(self) -> None:
        self.backend.init_cuda_graph_state(_ROOM, _ROOM)
        for size in _SIZES:
            self._lay_out(self._batch("DECODE", [], [], [], size), capture=True)
            self.graphs[size] = copy(self.backend.forward_metadata)  # tensors are captured by their addresses

    def prefill(self, encoder: list[int], cached: list[int], new: list[int]) -> Observation:
        """`new` tokens of text behind an encoder's and `cached` ones."""
        batch = self._batch("EXTEND", encoder, cached, new, len(new))
        self.backend.init_forward_metadata(batch)
        return self._attend(self.backend.forward_extend, batch, encoder, cached, new)

    def decode(self, encoder: list[int], text: list[int]) -> Observation:
        """The last token of each text: by graphs, where they were captured."""
        cached, new = [n - 1 for n in text], [1] * len(text)
        size = next(size for size in _SIZES if size >= len(text)) if self.graphs else len(text)
        batch = self._batch("DECODE", encoder, cached, new, size)
        if self.graphs:
            self._lay_out(batch, capture=False)
            self.backend.forward_metadata = self.graphs[size]
        else:
            self.backend.init_forward_metadata(batch)
        return self._attend(self.backend.forward_decode, batch, encoder, cached, new)

    def _attend(self, forward: Any, batch: Any, encoder: list[int], cached: list[int], new: list[int]) -> Observation:
        import torch

        seen, at, padding = [], cumulative(new).tolist(), batch.batch_size - len(new)
        for cross in (False, True)[: 1 + self.encoders]:
            q = torch.randn(sum(new) + padding, _HEADS, _DIM, generator=self.draw).half()
            out, reference = forward(q.flatten(1), None, None, _layer(cross), batch).view(q.shape), []
            for b, (image, before, more) in enumerate(zip(encoder, cached, new)):
                span = slice(0, image) if cross else slice(image, image + before + more)
                k, v = (x[self.req_to_token[b + 1, span].long()] for x in self.kv)
                reference.append(emulators.attention(q[at[b] : at[b + 1]], k, v, _DIM**-0.5, causal=not cross)[0])
            seen.append(observe(out[: sum(new)], torch.cat(reference)))
        return combine(*seen)

    def _lay_out(self, batch: Any, *, capture: bool) -> None:
        """Metadata of a batch, through the call that the graph runner of this release makes at capture or replay."""
        if hasattr(self.backend, "init_forward_metadata_out_graph"):  # 0.5.13 and later
            return self.backend.init_forward_metadata_out_graph(batch, in_capture=capture)
        size, what, mode = batch.batch_size, (batch.req_pool_indices, batch.seq_lens), batch.forward_mode
        if capture:
            return self.backend.init_forward_metadata_capture_cuda_graph(size, size, *what, batch.encoder_lens, mode, None)
        return self.backend.init_forward_metadata_replay_cuda_graph(
            size, *what, batch.seq_lens_sum, batch.encoder_lens, mode, None, seq_lens_cpu=batch.seq_lens_cpu
        )

    def _batch(self, mode: str, encoder: list[int], cached: list[int], new: list[int], size: int) -> Any:
        """Requests in front, padding rows of one token of text behind them; at capture there are padding rows alone."""
        import torch

        padding = size - len(new)
        lens = torch.tensor([before + more for before, more in zip(cached, new)] + [1] * padding)
        lens_of_encoders = torch.tensor(encoder + [self.padding_encoder] * padding) if self.encoders else None
        batch = object.__new__(self.modules[_BATCH].ForwardBatch)
        vars(batch).update(
            forward_mode=self.modules[_BATCH].ForwardMode[mode], batch_size=size, spec_info=None, seq_lens=lens,
            seq_lens_cpu=lens.clone(), seq_lens_sum=int(lens.sum()), encoder_lens=lens_of_encoders,
            encoder_lens_cpu=[*encoder], req_pool_indices=torch.tensor([*range(1, len(new) + 1)] + [0] * padding),
            req_to_token_pool=SimpleNamespace(req_to_token=self.req_to_token), token_to_kv_pool=self.pool, out_cache_loc=None,
            encoder_out_cache_loc=None, extend_prefix_lens_cpu=cached, extend_seq_lens_cpu=new, kv_loc_plan=None,
            extend_seq_lens=torch.tensor(new, dtype=torch.int32), positions=torch.zeros(size, dtype=torch.int64),
            attn_cp_metadata=None, attn_attend_prefix_cache=None, global_num_tokens_cpu=None, extend_num_tokens=sum(new),
        )  # fmt: skip
        return batch


def _layer(cross: bool) -> Any:
    return SimpleNamespace(
        layer_id=0, is_cross_attention=cross, tp_q_head_num=_HEADS, tp_k_head_num=_HEADS, tp_v_head_num=_HEADS, head_dim=_DIM,
        qk_head_dim=_DIM, v_head_dim=_DIM, scaling=_DIM**-0.5, logit_cap=0.0, attn_type=None, sliding_window_size=-1,
        k_scale=None, v_scale=None,
    )  # fmt: skip


class Proof(proof.Proof):
    modules = (BACKEND, _BATCH, CONFIG, TRANSLATOR)
    may_lack = (TRANSLATOR,)
    measure = "relative error against float64; infinite where the engine refuses the batch"

    def prepare(self) -> None:
        kernels: Any = importlib.import_module("sgl_kernel.flash_attn")
        kernels.flash_attn_varlen_func, kernels.flash_attn_with_kvcache = None, flash_attention.paged
        kernels.get_scheduler_metadata = lambda **_: None  # FlashAttention makes its own
        flash_attention.use(self.engine[BACKEND], flash_attention.paged)

    def scenario(self, seed: int) -> Observation:
        """Two to four requests, each with an encoder of its own; where no graph runs, some without."""
        model, lens = self._model(seed)
        batches = [(lens(1, 20, n), lens(4, 20, n)) for n in (2, 3, 4)]
        with_none = [([0, *encoder[1:]], text) for encoder, text in batches]
        seen = [self._refused(model.prefill, encoder, [0] * len(text), text) for encoder, text in batches + with_none]
        seen += [self._refused(model.prefill, encoder, [2] * len(text), text) for encoder, text in batches]
        seen += [self._refused(model.decode, encoder, text) for encoder, text in with_none]
        model.capture()
        return combine(*seen, *(model.decode(encoder, text) for encoder, text in batches))

    def control(self, seed: int) -> Observation:
        """One request at a time."""
        model, lens = self._model(seed)
        image, text = lens(1, 20, 1), lens(4, 20, 1)
        return combine(model.prefill(image, [0], text), model.prefill(image, [2], text), model.decode(image, text))

    def _model(self, seed: int) -> tuple[Model, Any]:
        import torch

        draw = torch.Generator().manual_seed(seed)
        return Model(self.engine, draw), lambda low, high, n: torch.randint(low, high, (n,), generator=draw).tolist()

    def _refused(self, run: Any, *lens: list[int]) -> Observation:
        try:
            return run(*lens)
        except AssertionError as error:
            if str(error) != "Only encoder size 1 is supported for now":
                raise
            return Observation(math.inf, str(error))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        slots, several = wrap.text_slots, wrap.of_several
        return {
            "the correction does nothing": replaced(wrap, "of_several", lambda lens: False),
            "batches of two are missed": replaced(wrap, "of_several", lambda lens: several(lens) and len(lens) > 2),
            "all texts begin behind the first encoder": replaced(
                wrap, "text_slots", lambda table, rows, lens, count: slots(table, rows, lens[:1].expand_as(lens), count)
            ),
            "texts begin behind the longest encoder": replaced(
                wrap, "text_slots", lambda table, rows, lens, count: slots(table, rows, lens.max().expand_as(lens), count)
            ),
        }
