"""Proof of sglang.fa3-encoder-replay: texts that lie behind encoders, in rows of `req_to_token` as wide as the engine's.

Real: construction of `FlashAttentionBackend`, its metadata with and without CUDA graphs, and its forward. FlashAttention 3 is
emulated. Judged are a layer of self attention and one of cross attention.
"""

from __future__ import annotations

import hashlib
import math
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath, Observation, combine, replaced
from attnfix.patches.lab.sglang.flash_attention import BACKEND
from attnfix.patches.sglang.fa3_cross_lengths import proof as cross
from attnfix.patches.sglang.fa3_cross_lengths.proof import CONTEXT, Model

_BEHIND = 4  # columns that a row has behind the context length

#: Tokens of encoders and of texts: a long image beside a long text, which fills its row up to the context length
_BESIDE = (
    ([40, 1], [6, CONTEXT - 1]),
    ([2, 30, 1], [CONTEXT - 2, 7, 9]),  # in a graph with a row of padding
    ([30, 20, 3, 11], [CONTEXT - 30, 3, CONTEXT - 3, 20]),
)
_ALONE = (([9], [5]), ([40], [CONTEXT - 40]))  # as a graph of later releases reads up to the context length for everybody
_SHORT = (([3], [5]), ([3, 1], [20, CONTEXT - 3]))  # no column behind a row


class Proof(cross.Proof):
    measure = "relative error against float64; infinite where the engine reads behind a row"

    def prepare(self) -> None:
        if not hasattr(self.engine[BACKEND].FlashAttentionBackend, "_apply_cuda_graph_metadata"):
            raise NoSuchPath("a batch has one encoder length: the matter of sglang.fa3-cross-lengths")
        super().prepare()

    def scenario(self, seed: int) -> Observation:
        model = self._made(seed)
        seen = []
        for encoder, text in _BESIDE:
            seen += [self._read(model.prefill, encoder, [cached] * len(text), [n - cached for n in text]) for cached in (0, 2)]
            seen.append(self._read(model.decode, [*encoder[:-1], 0], text))  # no graph where a request has no encoder
        model.capture()
        seen += [self._read(model.decode, encoder, text) for encoder, text in _BESIDE + _ALONE]
        model.padding_encoder = 40  # the buffer has what an earlier batch left there
        return combine(*seen, self._read(model.decode, *_BESIDE[1]), self._read(model.decode, *_SHORT[0]))

    def control(self, seed: int) -> Observation:
        """Encoders that are short enough, and a model without any; page tables have equal bits, too."""
        seen = []
        for model in (self._made(seed), self._made(seed, encoders=False)):
            cases = [(encoder if model.encoders else [0] * len(text), text) for encoder, text in _SHORT]
            for encoder, text in cases:
                seen.append(self._whole(model, model.prefill, encoder, [0] * len(text), text))
                seen.append(self._whole(model, model.decode, encoder, text))
            model.capture()
            seen += [self._whole(model, model.decode, encoder, text) for encoder, text in cases]
        return combine(*seen)

    def _made(self, seed: int, *, encoders: bool = True) -> Model:
        import torch

        return Model(self.engine, torch.Generator().manual_seed(seed), columns=CONTEXT + _BEHIND, encoders=encoders)

    def _read(self, run: Any, *lens: list[int]) -> Observation:
        try:
            return run(*lens)
        except IndexError as error:
            return Observation(math.inf, str(error))

    def _whole(self, model: Model, run: Any, *lens: list[int]) -> Observation:
        seen = run(*lens)
        table = model.backend.forward_metadata.page_table.tolist()
        return combine(seen, Observation(0, hashlib.sha256(repr(table).encode()).hexdigest()))

    def sabotages(self) -> dict[str, Any]:
        from . import wrap

        return {
            "the correction does nothing": replaced(wrap, "plain", lambda backend, spec_info: False),
            "the last column is forgotten": replaced(wrap, "last_column", lambda table: CONTEXT - 2),
            "columns may lie one behind a row": replaced(wrap, "last_column", lambda table: table.shape[1]),
        }
