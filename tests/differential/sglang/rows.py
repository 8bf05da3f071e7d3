"""What each attention layer is handed in a step, and what it returned, against float64.

Which tokens of which requests a batch computes is read from the scheduler's `Req`s before the engine lays the batch out: what
`ForwardBatch` and the backend make of it is what is tried.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from attnfix.patches.proofkit.sglang.engine import module

from .. import reference
from ..protocol import Output, Settings, Tolerance
from . import device, models, space
from .texts import Texts

_EXACT = Tolerance(0.25, 0.5)  # of what is right or wrong, and nothing between


class Span(NamedTuple):
    """Tokens begin … end of a request, the batch's one at `place`, which it computes in its rows from `row` on."""

    place: int
    row: int
    request: int
    begin: int
    end: int

    @property
    def rows(self) -> slice:
        return slice(self.row, self.row + self.end - self.begin)


class Rows:
    def __init__(self, settings: Settings, config: dict[str, Any], texts: Texts):
        import torch

        self.settings, self.config, self.texts = settings, config, texts
        self.dtype = getattr(torch, settings["dtype"])
        self.attention = module("layers.radix_attention").RadixAttention
        self.spans: list[Span] = []
        self.kinds: list[str] = []
        self.outputs: list[Output] = []
        self.decodes = False
        self._done: dict[int, int] = {}  # request -> tokens whose keys are in the cache

    def expect(self, batch: Any) -> None:
        """A batch is about to run."""
        self.spans, self.outputs, kinds = [], [], set()
        numbers = [int(request.rid) for request in batch.reqs]
        if batch.forward_mode.is_extend():
            rows = itertools.accumulate(batch.extend_lens, initial=0)
            for place, (row, number, begin, count) in enumerate(zip(rows, numbers, batch.prefix_lens, batch.extend_lens)):
                self.spans.append(Span(place, row, number, begin, begin + count))
                kinds.add(self._kind(number, begin, begin + count))
        elif batch.forward_mode.is_decode():
            done = [self._done[number] for number in numbers]
            self.spans = [Span(row, row, number, at, at + 1) for row, (number, at) in enumerate(zip(numbers, done))]
            kinds.add("decode")
        else:
            kinds.add("idle")
        self.decodes = batch.forward_mode.is_decode()
        self._done |= {span.request: span.end for span in self.spans}
        refused = {number for number, request in zip(numbers, batch.reqs) if not self._taken(number, request)}
        self.spans = [span for span in self.spans if span.request not in refused]
        self.kinds = sorted(kinds)

    def _taken(self, number: int, request: Any) -> bool:
        """Whether the server took the request: of one that is too long it computes a token of its own, and says so."""
        return list(request.origin_input_ids) == self.texts.tokens[number][: self.texts.prompts[number]]

    def _kind(self, number: int, begin: int, end: int) -> str:
        """What a request does in a batch that extends."""
        before, prompt = self._done.get(number, 0), self.texts.prompts[number]
        if begin >= prompt:
            return "decode"  # in a mixed batch
        if begin > before:
            return "cached"
        return "chunk" if begin or end < prompt else "fresh"

    # Hooks of torch's modules

    def handed(self, layer: Any, args: tuple) -> tuple | None:
        """Before an attention layer: its queries, keys and values become the drawn ones."""
        if not isinstance(layer, self.attention):
            return None
        graph = device.capturing()
        with device.unrecorded():
            given = tuple(one.clone() for one in args[:3])
            if graph:
                graph.before.append(lambda: self._fill(layer, given))
            else:
                self._fill(layer, given)
        return (*given, *args[3:])

    def returned(self, layer: Any, args: tuple, out: Any) -> None:
        """Behind an attention layer, and behind the model."""
        if isinstance(layer, self.attention):
            look = lambda: self._compare(layer, args[3], out)  # noqa: E731
        elif type(layer).__name__ == "LogitsProcessor":
            look = lambda: self._sure(out)  # noqa: E731
        else:
            return
        if graph := device.capturing():
            graph.after.append(look)
        else:
            look()

    def _fill(self, layer: Any, given: tuple) -> None:
        for what, rows in zip("qkv", given):
            heads, dim = self._shape(layer, what)
            for span in self.spans:
                drawn = self.texts.rows(what, layer.layer_id, span.request, heads, dim, rows.dtype)
                rows.view(len(rows), heads, dim)[span.rows] = drawn[span.begin : span.end]
        if self.spans and len(given[0]) > self.spans[-1].rows.stop:
            self.kinds = sorted({*self.kinds, "padded"})

    @staticmethod
    def _shape(layer: Any, what: str) -> tuple[int, int]:
        return {
            "q": (layer.tp_q_head_num, layer.qk_head_dim), "k": (layer.tp_k_head_num, layer.qk_head_dim),
            "v": (layer.tp_v_head_num, layer.v_head_dim),
        }[what]  # fmt: skip

    def _laid_out(self, batch: Any) -> None:
        """Whether the engine gave each row its token and its position."""
        tokens = [token for span in self.spans for token in self.texts.tokens[span.request][span.begin : span.end]]
        positions = [at for span in self.spans for at in range(span.begin, span.end)]
        for name, given, wanted in (("tokens", batch.input_ids, tokens), ("positions", batch.positions, positions)):
            given = given.tolist()
            found = [value for span in self.spans for value in given[span.rows]]
            wrong = next((row for row, pair in enumerate(zip(found, wanted)) if pair[0] != pair[1]), None)
            error = math.inf if wrong is not None or len(found) != len(wanted) else 0.0
            self.outputs.append(Output(name, error, reference.digest(found), _EXACT, f"row {wrong}"))

    def _compare(self, layer: Any, batch: Any, out: Any) -> None:
        import torch

        if not self.spans:
            return
        if layer.layer_id == 0:
            self._laid_out(batch)
        number, attention = layer.layer_id, models.attention(self.config, layer.layer_id)
        (heads, _), (_, dim) = self._shape(layer, "q"), self._shape(layer, "v")
        rows = out.reshape(-1, heads, dim)
        true, labels = [], []
        for span in self.spans:
            q, k, v = (
                self.texts.rows(what, number, span.request, *self._shape(layer, what), self.dtype) for what in "qkv"
            )  # fmt: skip
            true.append(reference.attention(
                q[span.begin : span.end], k[: span.end], v[: span.end], range(span.begin, span.end), scale=attention.scale,
                window=space.window(self.settings, attention.window, self.decodes), soft_cap=attention.soft_cap,
            ))  # fmt: skip
            labels += [f"request {span.request}, token {at}" for at in range(span.begin, span.end)]
        found = torch.cat([rows[span.rows] for span in self.spans])
        within = space.tolerance(self.settings, found.dtype)
        self.outputs.append(reference.compare(f"layer {number}", found, torch.cat(true), labels, within))

    def _sure(self, out: Any) -> None:
        """The model's logits become those of the text's next tokens."""
        logits = out.next_token_logits
        logits.zero_()
        for span in self.spans:
            logits[span.place, self.texts.tokens[span.request][span.end]] = 1
