"""What is asked: text of tokens that a model has seen, never the same twice."""

from __future__ import annotations

import random
from collections.abc import Callable

#: Ids that every vocabulary has, where the server shows no tokenizer. One beyond its vocabulary may end a server
_SAFE = range(100, 1000)
_NONCE = 8  # tokens at the beginning, so that no cache holds the first block of a prompt

_PEOPLE = (
    "Maria Keller",
    "Omar Haddad",
    "Ines Duarte",
    "Pavel Novak",
    "Aiko Tanaka",
    "Grace Mensah",
    "Liam Byrne",
    "Sofia Rossi",
)
_PLACES = ("the harbour", "the old library", "the station", "the north garden", "the observatory", "the market hall")
_THINGS = ("a letter", "the blue ledger", "three keys", "a map of the river", "the spare lamp", "a box of seeds", "two tickets")
_DEEDS = (
    "left {thing} at {place}",
    "came back to {place} for {thing}",
    "sold {thing} near {place}",
    "counted {thing} in {place}",
)
_WHENS = ("On Monday", "Late in the evening", "Before the rain came", "A week later", "After lunch", "In the second year")


def sentences(draw: random.Random, count: int) -> list[str]:
    """Plain sentences, of which a model can expect how they go on."""
    told = []
    for at in range(count):
        deed = draw.choice(_DEEDS).format(thing=draw.choice(_THINGS), place=draw.choice(_PLACES))
        told.append(f" {draw.choice(_WHENS)}, {draw.choice(_PEOPLE)} {deed}, and page {at + 1} says why.")
    return told


class Prompts:
    """Prompts of any length. tokenize: the server's own tokenizer, which answers None where there is none."""

    def __init__(self, draw: random.Random, tokenize: Callable[[str], list[int] | None]):
        self._draw = draw
        self._text: list[list[int]] = []
        for sentence in sentences(draw, 40):
            tokens = tokenize(sentence)
            if not tokens:
                break
            self._text.append(tokens)
        self.natural = len(self._text) == 40

    def fresh(self, count: int) -> tuple[int, ...]:
        """`count` tokens that nobody has sent before."""
        if not self.natural:
            return tuple(self._draw.choice(_SAFE) for _ in range(count))
        known = [token for sentence in self._text for token in sentence]
        tokens = [self._draw.choice(known) for _ in range(_NONCE)]
        while len(tokens) < count:
            tokens += self._draw.choice(self._text)
        return tuple(tokens[:count])

    def salt(self) -> str:
        return f"attnfix-probe-{self._draw.getrandbits(64):016x}"
