"""What is asked: text of tokens that a model has seen, never the same twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

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
_KEEPERS = ("Beatrix Oyelaran", "Casper Lindqvist", "Dolores Quintana", "Emeka Sandoval", "Freya Kowalczyk", "Gideon Marchetti")
_TOLD = " Page 2 says that the key to the cellar is kept by {name}."
_ASKED = " At the end somebody asks who keeps the key to the cellar. Page 2 says that it is kept by"
_WHENS = ("On Monday", "Late in the evening", "Before the rain came", "A week later", "After lunch", "In the second year")


def sentences(draw: random.Random, count: int) -> list[str]:
    """Plain sentences, of which a model can expect how they go on."""
    told = []
    for at in range(count):
        deed = draw.choice(_DEEDS).format(thing=draw.choice(_THINGS), place=draw.choice(_PLACES))
        told.append(f" {draw.choice(_WHENS)}, {draw.choice(_PEOPLE)} {deed}, and page {at + 1} says why.")
    return told


@dataclass(frozen=True)
class Needle:
    """What a prompt says on its second page, and asks for at its end."""

    name: str
    said: tuple[int, ...]
    asked: tuple[int, ...]


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
        self._needles = self._make_needles(tokenize) if self.natural else []

    @staticmethod
    def _make_needles(tokenize: Callable[[str], list[int] | None]) -> list[Needle]:
        asked = tokenize(_ASKED) or []
        told = [(name, tokenize(_TOLD.format(name=name)) or []) for name in _KEEPERS]
        return [Needle(name, tuple(said), tuple(asked)) for name, said in told if said and asked]

    def with_needle(self, count: int) -> tuple[tuple[int, ...], str]:
        """`count` tokens that nobody has sent before, and the name that they ask for at their end; "": they ask for none."""
        if not self._needles:
            return self.fresh(count), ""
        needle = self._draw.choice(self._needles)
        head = [*self.fresh(_NONCE), *self._draw.choice(self._text)]
        left = count - len(head) - len(needle.said) - len(needle.asked)
        if left < 0:
            return self.fresh(count), ""
        return (*head, *needle.said, *self._pages(left), *needle.asked), needle.name

    def _pages(self, count: int) -> list[int]:
        tokens: list[int] = []
        while len(tokens) < count:
            tokens += self._draw.choice(self._text)
        return tokens[:count]

    def fresh(self, count: int) -> tuple[int, ...]:
        """`count` tokens that nobody has sent before."""
        if not self.natural:
            return tuple(self._draw.choice(_SAFE) for _ in range(count))
        known = [token for sentence in self._text for token in sentence]
        nonce = [self._draw.choice(known) for _ in range(_NONCE)]
        return tuple((nonce + self._pages(count - _NONCE))[:count])

    def salt(self) -> str:
        return f"attnfix-probe-{self._draw.getrandbits(64):016x}"
