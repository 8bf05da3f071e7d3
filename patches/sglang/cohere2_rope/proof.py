"""Proof of sglang.cohere2-rope: layers of Cohere 2 with a window and without, on two backends.

Real: the layer with its constructor, its projections and its rotary embedding, and the server's arguments. Stood in for: the
backend's attention, which takes the window from the layer as FlashAttention-3 does. Spared: layers of Cohere 1, and layers with
RoPE within their window, where their backend needs it of the runner or the server speculates.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from attnfix.patches.lab.proof import Cases, NoSuchPath, Observation, observe, replaced
from attnfix.patches.lab.rotary import frequencies, rotated_in_pairs
from attnfix.patches.lab.sglang import (
    absent,  # noqa: F401  its stand-ins for imports are wanted here
    construction,
)

from . import wrap

_MODEL, _ROTARY = "sglang.srt.models.commandr", "sglang.srt.layers.rotary_embedding"
_HEADS, _KV_HEADS, _DIM, _BASE, _WINDOW = 4, 2, 64, 50000.0, 8
_WIDTH = _HEADS * _DIM
#: Later releases give a window of one token more
_NONE = "no CohereAttention.__init__: sliding_window"


class Case(NamedTuple):
    """`layer`: of four, the last one sees all tokens. `first`: of Cohere 1. `drafts`: the server speculates."""

    layer: int
    tokens: int
    backend: str = "fa3"
    first: bool = False
    drafts: bool = False
    where: str = ""


class Runner(NamedTuple):
    """Up to 0.5.3.post1, who loads a model alone says how the server was launched."""

    server_args: Any

    def load_model(self, layer: Callable[[Case], Any], case: Case) -> Any:
        return layer(case)


class Proof(Cases):
    modules = (_MODEL, _ROTARY)
    kernel = "none"
    bug = (
        Case(3, 7),
        Case(3, 21),
        Case(3, 7, backend="triton"),
        Case(3, 7, drafts=True, where=_NONE),
        Case(0, 21, where=_NONE),
        Case(2, 9, where=_NONE),
    )
    spared = (
        Case(1, 7, backend="triton"),
        Case(1, 7, drafts=True, where=_NONE),
        Case(3, 21, first=True),
        Case(0, 9, first=True),
    )
    broken = {
        "layers without positions rotate": (wrap.as_they_are, lambda real, positions, query, key: (-query, key)),
        "the window has a token more": (wrap.window, lambda real, tokens: real(tokens) + 1),
        "no backend reads windows": (wrap.reads_windows, lambda real, args: False),
    }
    broken_where = {name: _NONE for name in list(broken)[1:]}

    def prepare(self) -> None:
        if _MODEL not in self.engine:
            raise NoSuchPath("no Cohere")
        super().prepare()

    def run(self, case: Case, seed: int) -> Observation:
        import torch

        torch.manual_seed(seed)
        runner = construction.serve("--attention-backend", case.backend, draft=False)
        speculates = replaced(runner.server_args, "speculative_algorithm", "NGRAM") if case.drafts else nullcontext()
        with speculates:
            layer = Runner(runner.server_args).load_model(self._made, case)
        for weight in layer.parameters():
            weight.data.copy_(torch.randn(weight.shape) / _WIDTH**0.5)
        attn = layer.attn
        vars(attn)["forward"] = lambda q, k, v, *_, **__: _attention(q, k, v, attn.sliding_window_size).to(q.dtype)
        hidden, positions = torch.randn(case.tokens, _WIDTH), torch.arange(3, 3 + case.tokens)
        with torch.no_grad():
            return observe(layer(positions, hidden, None), self._exact(layer, case, hidden.double(), positions))

    def _made(self, case: Case) -> Any:
        import torch
        import transformers

        kind: Any = transformers.CohereConfig if case.first else transformers.Cohere2Config
        config = kind(
            hidden_size=_WIDTH, num_attention_heads=_HEADS, num_key_value_heads=_KV_HEADS, num_hidden_layers=4,
            max_position_embeddings=64, rope_parameters={"rope_type": "default", "rope_theta": _BASE},
            **({} if case.first else {"sliding_window": _WINDOW}),
        )  # fmt: skip
        config.rope_theta = _BASE  # older releases' Transformers have it
        home = sys.modules[self.engine[_ROTARY].RotaryEmbedding.__module__]
        former = torch.get_default_dtype()
        torch.set_default_dtype(torch.float16)
        try:
            with replaced(home, "_is_cuda", True):
                return self.engine[_MODEL].CohereAttention(config=config, layer_id=case.layer).float()
        finally:
            torch.set_default_dtype(former)

    def _exact(self, layer: Any, case: Case, hidden: Any, positions: Any) -> Any:
        """float64 [tokens, width], as the checkpoint was trained."""
        widths = [heads * _DIM for heads in (_HEADS, _KV_HEADS, _KV_HEADS)]
        q, k, v = (hidden @ layer.qkv_proj.weight.double().T).split(widths, -1)
        if case.first or case.layer < 3:
            turns = frequencies(_DIM, _BASE)
            q, k = (rotated_in_pairs(rows.unflatten(-1, (-1, _DIM)), positions, turns) for rows in (q, k))
        seen = _attention(q, k, v, -1 if case.first or case.layer == 3 else _WINDOW - 1)
        return seen @ layer.o_proj.weight.double().T


def _attention(q: Any, k: Any, v: Any, window: int) -> Any:
    """float64 [tokens, heads * d]; `window`: how many tokens before itself a token sees, -1 for all."""
    import torch

    q, k, v = (rows.double().unflatten(-1, (-1, _DIM)).transpose(0, 1) for rows in (q, k, v))
    k, v = (rows.repeat_interleave(_HEADS // _KV_HEADS, 0) for rows in (k, v))
    place = torch.arange(q.shape[1])
    back = place[:, None] - place
    hidden = (back < 0) | (back > window) if window >= 0 else back < 0
    scores = (q @ k.transpose(1, 2) / _DIM**0.5).masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
