"""What each attention layer is handed in a step, and what it returned, against float64.

Which tokens of which requests a batch computes is read from the scheduler's `Req`s before the engine lays the batch out: what
`ForwardBatch` and the backend make of it is what is tried.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

from .. import reference
from ..protocol import Output, Settings, Tolerance
from . import models, space
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
        self.settings, self.config, self.texts = settings, config, texts
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

    def handed(self, layer: Any, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        """Before an attention layer: its queries, keys and values become the drawn ones."""
        q, k, v, *rest = args
        heads = {"q": layer.tp_q_head_num, "k": layer.tp_k_head_num, "v": layer.tp_v_head_num}
        dims = {"q": layer.qk_head_dim, "k": layer.qk_head_dim, "v": layer.v_head_dim}
        drawn = []
        for what, given in zip("qkv", (q, k, v)):
            new = given.clone()
            for span in self.spans:
                rows = self.texts.rows(what, layer.layer_id, span.request, heads[what], dims[what], given.dtype)
                new.view(len(given), heads[what], dims[what])[span.rows] = rows[span.begin : span.end]
            drawn.append(new)
        if layer.layer_id == 0:
            self._laid_out(args[3])
        return (*drawn, *rest), kwargs

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

    def returned(self, layer: Any, args: tuple, kwargs: dict[str, Any], out: Any) -> None:
        """Behind an attention layer."""
        import torch

        if not self.spans:
            return
        heads, dim, number = layer.tp_q_head_num, layer.v_head_dim, layer.layer_id
        attention = models.attention(self.config, number)
        true, labels = [], []
        for _, _, request, begin, end in self.spans:
            of = lambda what, count, width: self.texts.rows(what, number, request, count, width, args[0].dtype)  # noqa: B023, E731
            q = of("q", heads, layer.qk_head_dim)[begin:end]
            k = of("k", layer.tp_k_head_num, layer.qk_head_dim)[:end]
            v = of("v", layer.tp_v_head_num, dim)[:end]
            true.append(reference.attention(
                q, k, v, range(begin, end), scale=attention.scale, soft_cap=attention.soft_cap,
                window=space.window(self.settings, attention.window, self.decodes),
            ))  # fmt: skip
            labels += [f"request {request}, token {at}" for at in range(begin, end)]
        rows = out.reshape(len(args[0]), heads, dim)
        rows = torch.cat([rows[span.rows] for span in self.spans])
        within = space.tolerance(self.settings, rows.dtype)
        self.outputs.append(reference.compare(f"layer {number}", rows, torch.cat(true), labels, within))

    def sure(self, layer: Any, args: tuple, out: Any) -> None:
        """Behind the model: its logits become those of the text's next tokens."""
        logits = out.next_token_logits
        logits.zero_()
        for span in self.spans:
            logits[span.place, self.texts.tokens[span.request][span.end]] = 1
