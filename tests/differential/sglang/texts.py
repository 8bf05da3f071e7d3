"""Tokens of a case's requests, and the queries, keys and values that attention is handed for them.

They are drawn from the case's seed: what comes before an attention layer is the same on both sides, whatever the layers before
it returned, and the keys of a prefix are the same whoever computes it. Requests share exactly what the case says: no token
occurs twice otherwise. Under another adapter the same tokens have other rows, and so have those behind another image, which
are tokens, too: the values that the engine puts in the place of its placeholders.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from typing import Any

from ..protocol import Case

_BEHIND = 16  # tokens behind the last one that is asked for, which a drafter may propose


class Texts:
    """narrow: whether rows are to survive a round trip through FP8, so that a cache which holds it loses nothing.
    values: of an image, what stands for its tokens."""

    def __init__(
        self, case: Case, vocabulary: int, narrow: Any = None, values: Callable[[list[int]], list[int]] = lambda image: []
    ):
        import random

        self.strange = range(vocabulary - 64, vocabulary)  # tokens that no text has
        unused = list(range(3, vocabulary - 64))
        random.Random(case["seed"]).shuffle(unused)
        fresh = itertools.cycle(unused)
        self.seed, self.narrow = case["seed"], narrow
        #: tokens of each request: its prompt, its answer, and what would follow
        self.tokens: list[list[int]] = []
        self.prompts = [request["prompt"] for request in case["requests"]]
        self.outputs = [request["output"] for request in case["requests"]]
        self.adapters = [request.get("adapter", 0) for request in case["requests"]]
        self.images = [request.get("image") for request in case["requests"]]
        self._common: list[tuple[int, int]] = []  # whose rows the first tokens have, and how many of them
        text: list[list[int]] = []  # without images
        for number, request in enumerate(case["requests"]):
            source, same = request["common"] or (number, 0)
            same = min(same, request["prompt"], len(text[source]) if source < number else 0)
            length = request["prompt"] + request["output"] + _BEHIND
            begin = text[source][:same] if same else []
            text.append(begin + list(itertools.islice(fresh, length - same)))
            self.tokens.append(list(text[number]))
            if image := self.images[number]:
                self.tokens[number][image[0] : image[0] + image[1]] = values(image)
            self._common.append(self._computed_alike(number))
        self._rows: dict[tuple, Any] = {}

    def whatever_the_adapter(self) -> Texts:
        """These, as if each request had the same one."""
        other = copy.copy(self)
        other.adapters, other._rows = [0] * len(self.adapters), {}
        other._common = [other._computed_alike(number) for number in range(len(self.tokens))]
        return other

    def _computed_alike(self, number: int) -> tuple[int, int]:
        """An earlier request, and how many of the first tokens have its rows: the most that any has."""
        mine, alike = self.tokens[number], {}
        for other in [other for other in range(number) if self.adapters[other] == self.adapters[number]]:
            pairs = enumerate(zip(mine, self.tokens[other]))
            alike[other] = next((at for at, (one, two) in pairs if one != two), min(len(mine), len(self.tokens[other])))
        return max(alike.items(), key=lambda one: one[1], default=(number, 0))

    def rows(self, what: str, layer_id: int, request: int, heads: int, dim: int, dtype: Any, drafts: bool = False) -> Any:
        """[tokens, heads, dim] for each token of the request; what: "q", "k" or "v", or "p", what a recurrent
        layer projects; drafts: of the drafter's layer.

        A drafter's row at a position stands for the token behind it, too.
        """

        key = (what, layer_id, request, heads, dim, dtype, drafts)
        if key not in self._rows:
            seed = (self.seed, "qkvp".index(what), layer_id, request, drafts)
            rows = self._draw(seed, (len(self.tokens[request]), heads, dim)).to(dtype)
            source, same = self._common[request]
            if same := max(same - drafts, 0):
                rows[:same] = self.rows(what, layer_id, source, heads, dim, dtype, drafts)[:same]
            self._rows[key] = rows
        return self._rows[key]

    def _draw(self, seed: tuple[int, ...], shape: tuple[int, ...]) -> Any:
        import torch

        rows = torch.randn(shape, generator=torch.Generator().manual_seed(hash(seed) % 2**63))
        return rows if self.narrow is None else rows.to(self.narrow)

    def of_a_draft(self, what: str, layer_id: int, request: int, at: int, token: int, like: Any) -> Any:
        """The row of a token that is not the text's."""
        return self._draw((self.seed, "qkvp".index(what), layer_id, request, at, token), tuple(like.shape)).to(like.dtype)

    def candidates(self, request: int, at: int, wrong: dict[int, int]) -> list[int]:
        """What the drafter of a tree says may stand there, the likeliest first: the text's token is the first, the second or
        none of them. wrong: position -> token, of the branch that it goes on with; two branches do not go on alike."""
        said = hash((self.seed, request, at, *sorted(wrong.items())))
        others = [self.strange[(said + more) % len(self.strange)] for more in (0, 1)]
        if wrong or said % 16 == 0:
            return others
        right = self.tokens[request][at]
        return [others[0], right] if said % 4 == 0 else [right, others[1]]

    def proposed(self, request: int, at: int) -> int:
        """What the drafter says will stand there: one time in four it is wrong."""
        chance = hash((self.seed, request, at))
        return self.strange[chance % len(self.strange)] if chance % 4 == 0 else self.tokens[request][at]
