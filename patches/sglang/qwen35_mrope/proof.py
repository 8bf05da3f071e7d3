"""Proof of sglang.qwen35-mrope: prompts with images, in batches, chunks, later pipeline stages and a prefill graph.

Spared: text, decode behind an image, and models whose text has one position a token.

Real: the layer with its constructor and its rotary embedding, the engine's Triton kernels, the positions that it gives images
and batches, and its way from a batch with images to the layers. Emulated: the embedding of images, attention, and a CUDA graph.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, NamedTuple

from attnfix.patches.lab.cuda_graph import Graph
from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe, replaced
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)
from attnfix.patches.lab.sglang.engine import module

from .wrap import QWEN, cos_sin, may_differ

_CONFIG = "sglang.srt.configs.qwen3_5"
_ROTARY = "sglang.srt.layers.rotary_embedding"
_KERNELS = (
    "sglang.kernels.ops.attention.fused_qk_rmsnorm_rope_gate", "sglang.srt.layers.fused_qk_rmsnorm_rope_gate",
)  # fmt: skip
_HEADS, _DIM, _ROTARY_DIM, _WIDTH, _BASE = 2, 64, 32, 64, 100.0
#: Lanes of a head that rotate by time, by height and by width
_SECTION = [6, 5, 5]
_MERGE, _START, _IMAGE, _VIDEO, _TEXT = 2, 90, 91, 92, 7
#: Patches of an image: time, height, width
_WIDE, _TALL = (1, 4, 16), (1, 20, 2)


class Case(NamedTuple):
    """`requests`: lengths of text and grids of images, in a row. `spans`: tokens of each that are in the batch."""

    requests: tuple[tuple[Any, ...], ...]
    spans: tuple[tuple[int, int], ...]
    mode: str = "EXTEND"
    first_stage: bool = True
    graph: bool = False
    one_position: bool = False


def _by_axes(real: Any, rotary: Any, positions: Any, *, axes: tuple[int, int, int]) -> Any:
    return real(rotary, positions[list(axes)])


class Proof(Cases):
    modules = (QWEN, _CONFIG, f"{_ROTARY}.mrope", f"{_ROTARY}.base", "sglang.srt.managers.mm_utils", *_KERNELS)
    may_lack = modules
    kernel = "interpreted"
    needs = "Qwen3_5AttentionDecoderLayer.forward_prepare_cuda_fused"
    absent = "no kernel of Qwen3.5 normalizes and rotates in one"
    bug = (
        Case(((5, _WIDE, 3),), ((0, 25),)),
        Case(((4,), (3, _TALL, 2, _WIDE, 4)), ((1, 4), (0, 37))),
        Case(((5, _WIDE, 3), (9,)), ((11, 17), (0, 9)), mode="MIXED"),
        Case(((5, _WIDE, 3),), ((0, 25),), first_stage=False),
        Case(((2, _TALL, 3), (3,)), ((0, 16), (0, 3)), graph=True),
    )
    spared = (
        Case(((9,), (6,)), ((0, 9), (2, 6))),
        Case(((9,), (6,)), ((0, 9), (2, 6)), first_stage=False),
        Case(((5, _WIDE, 3), (4,)), ((27, 28), (5, 6)), mode="DECODE"),
        Case(((5, _WIDE, 3), (4,)), ((27, 28), (5, 6)), mode="DECODE", graph=True),
        Case(((9,), (6,)), ((0, 9), (2, 6)), one_position=True),
    )
    broken = {
        "the correction does nothing": (cos_sin, lambda real, *given: _by_axes(real, *given, axes=(0, 0, 0))),
        "height and width are swapped": (cos_sin, lambda real, *given: _by_axes(real, *given, axes=(0, 2, 1))),
        "a token has the row of another": (cos_sin, lambda real, *given: real(*given).roll(1, 0)),
        "later pipeline stages and graphs are left": (
            may_differ, lambda real, batch: real(batch) and batch.mm_input_embeds is not None,
        ),
        "batches whose images were taken off are left": (
            may_differ, lambda real, batch: real(batch) and batch.mm_inputs is not None,
        ),
    }  # fmt: skip

    def prepare(self) -> None:
        if QWEN not in self.engine:
            raise NoSuchPath("no Qwen3.5")
        super().prepare()
        (kernels,) = (self.engine[name] for name in _KERNELS if name in self.engine)
        fused = "fused_qk_gemma_rmsnorm_rope_gate"
        vars(self.engine[QWEN]).update({"_is_cuda": True, fused: getattr(kernels, fused)})
        self.engine[f"{_ROTARY}.base"]._is_cuda = True
        self.served = construction.serve("--attention-backend", "triton", draft=False)

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        draw = torch.Generator().manual_seed(seed)
        layer = self._layer(draw)
        batch, positions = self._batch(case)
        hidden = torch.randn(positions.shape[-1], _WIDTH, generator=draw).half()
        if case.graph:
            seen = self._replayed(layer, case, positions, hidden)
        else:
            seen = self._forward(layer, case, batch, positions, hidden)
        return observe(seen, self._exact(layer, positions, hidden))

    def _layer(self, draw: Any) -> Any:
        import torch

        rotated = {"partial_rotary_factor": _ROTARY_DIM / _DIM}
        rope = {"rope_type": "default", "rope_theta": _BASE, "mrope_section": _SECTION, "mrope_interleaved": True, **rotated}
        config = self.engine[_CONFIG].Qwen3_5TextConfig(
            hidden_size=_WIDTH, intermediate_size=32, num_attention_heads=_HEADS, num_key_value_heads=1, head_dim=_DIM,
            num_hidden_layers=4, full_attention_interval=4, max_position_embeddings=64, rope_parameters=rope, **rotated,
        )  # fmt: skip
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.float16)
        try:
            kind = self.engine[QWEN].Qwen3_5AttentionDecoderLayer
            (layer,) = module("utils").make_layers(1, lambda idx, prefix: kind(config, layer_id=3))
        finally:
            torch.set_default_dtype(former)
        for weight in layer.parameters():
            weight.data.copy_(torch.randn(weight.shape, generator=draw) / 4)
        layer.attn = _attention()
        return layer

    def _batch(self, case: Case) -> tuple[Any, Any]:
        """A `ForwardBatch`, and the positions that the engine gives it: int64 [3, tokens], or [tokens]."""
        import torch

        starts, ends = zip(*case.spans)
        new = [end - start for start, end in case.spans]
        batch = self.served.forward_batch(
            case.mode, batch_size=len(new), input_ids=torch.zeros(sum(new), dtype=torch.int64),
            req_pool_indices=torch.arange(len(new)), seq_lens=torch.tensor(ends), seq_lens_cpu=torch.tensor(ends),
            seq_lens_sum=sum(ends), out_cache_loc=torch.arange(sum(new)), extend_prefix_lens_cpu=list(starts),
            extend_seq_lens_cpu=new, mm_inputs=[self._images(parts) for parts in case.requests],
        )  # fmt: skip
        scheduled = SimpleNamespace(
            multimodal_inputs=batch.mm_inputs, extend_lens=new, prefix_lens=list(starts),
            reqs=[SimpleNamespace(session=None)] * len(new),  # the newest releases ask them
        )  # fmt: skip
        batch._compute_mrope_positions(SimpleNamespace(device="cpu"), scheduled)
        return batch, batch.mrope_positions[0].clone() if case.one_position else batch.mrope_positions

    def _images(self, parts: tuple[Any, ...]) -> Any:
        """The engine's `MultimodalInputs` of a prompt; None of one without an image."""
        import torch

        grids, tokens = [part for part in parts if isinstance(part, tuple)], []
        for part in parts:
            tokens += [_START, *[_IMAGE] * (math.prod(part) // _MERGE**2)] if isinstance(part, tuple) else [_TEXT] * part
        if not grids:
            return None
        positions, delta = self.engine[f"{_ROTARY}.mrope"].MRotaryEmbedding.get_rope_index(
            _MERGE, _IMAGE, _VIDEO, _START, "qwen3_5", input_ids=torch.tensor([tokens]), image_grid_thw=torch.tensor(grids)
        )
        home = module("managers.schedule_batch")
        return home.MultimodalInputs(
            mm_items=[home.MultimodalDataItem(modality=home.Modality.IMAGE) for _ in grids],
            mrope_positions=positions.squeeze(1), mrope_position_delta=delta,
        )  # fmt: skip

    def _forward(self, layer: Any, case: Case, batch: Any, positions: Any, hidden: Any) -> Any:
        """The layer behind the engine's embedding of images."""
        home = self.engine["sglang.srt.managers.mm_utils"]

        class Model:
            pp_group = SimpleNamespace(is_first_rank=case.first_stage)

            def get_input_embeddings(self) -> Any:
                return lambda tokens: hidden

            def __call__(self, **given: Any) -> Any:
                return _keys(layer, positions, hidden, given["forward_batch"])

        with replaced(home, "embed_mm_inputs", lambda **given: (hidden, {})):
            return home.general_mm_embed_routine(batch.input_ids, batch, Model())

    def _replayed(self, layer: Any, case: Case, positions: Any, hidden: Any) -> Any:
        """Captured with a batch as the engine's graph runners make it up, then replayed with these positions."""
        import torch

        rows = len(hidden)
        batch, _ = self._batch(Case(((1,),) * rows, ((0, 1),) * rows, case.mode))
        batch.mm_inputs = None
        static = torch.zeros(3, 2 * rows, dtype=torch.int64)[:, :rows]
        graph = Graph()
        seen = graph.recorded(lambda static: _keys(layer, static, hidden, batch))(static)
        static.copy_(positions)
        graph.replay()
        return seen

    def _exact(self, layer: Any, positions: Any, hidden: Any) -> Any:
        """Queries and keys in float64, from the projection as the engine computes it."""
        import torch

        qkv = layer.qkv_proj(hidden)[0].double()
        q, k = qkv[:, : 2 * _HEADS * _DIM].view(-1, _HEADS, 2, _DIM)[:, :, 0], qkv[:, 2 * _HEADS * _DIM :][:, None, :_DIM]
        half = _ROTARY_DIM // 2
        lanes = torch.arange(half)
        axes = torch.tensor([lane % 3 if lane < 3 * _SECTION[lane % 3] else 0 for lane in range(half)])
        places = positions.expand(3, -1)[axes].T.double()
        angles = (places * _BASE ** (-lanes.double() / half))[:, None]

        def rotated_rows(rows: Any, norm: Any) -> Any:
            rows = rows / (rows.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt() * (1 + norm.weight.double())
            first, second, rest = rows.split([half, half, _DIM - _ROTARY_DIM], -1)
            cos, sin = angles.cos(), angles.sin()
            return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1).flatten(1)

        return torch.cat([rotated_rows(q, layer.q_norm), rotated_rows(k, layer.k_norm)], -1)


def _keys(layer: Any, positions: Any, hidden: Any, forward_batch: Any) -> Any:
    """Queries and keys that attention gets: [tokens, (query heads + key heads) * d]."""
    layer.self_attention(positions=positions, hidden_states=hidden, forward_batch=forward_batch)
    return layer.attn.seen


def _attention() -> Any:
    """In the place of attention: keeps queries and keys, and answers with the queries."""
    import torch

    class Attention(torch.nn.Module):
        seen: Any = None

        def forward(self, q: Any, k: Any, v: Any, forward_batch: Any, **given: Any) -> Any:
            self.seen = torch.cat([q, k], -1)
            return q.clone()

    return Attention()
