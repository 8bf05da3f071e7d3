"""The circumstances that must not matter: the same prompt cold and alone, and then in each of these."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .answers import Answer, Question, Refused, distance
from .client import Facts, Server
from .prompts import Prompts

AGAIN, PREFIX, COMPANY, CACHED_COMPANY, BURST, TURN = (
    "again", "cached prefix", "in company", "cached, in company", "burst", "next turn",
)  # fmt: skip
_NEW = 8  # tokens compared of each answer
_TURN = 24  # tokens that the model says before the next turn
_CUTS = 3  # of each prompt
_SHORT, _TINY = 600, 40  # tokens of the company. Some kernels take up to 512 new tokens for a decode


@dataclass(frozen=True)
class Seen:
    """moved: how far the answer moved, in nat; None where nothing could be compared, `why`."""

    moved: float | None
    why: str = ""


@dataclass(frozen=True)
class Sizes:
    """length: tokens of a prompt. width: requests at once. in_flight: tokens of all requests at once, at most."""

    length: int
    width: int
    in_flight: int


class Circumstances:
    """Asks one server. Every figure is of a prompt of its own."""

    def __init__(self, server: Server, prompts: Prompts, sizes: Sizes, draw: random.Random):
        self.server, self.prompts, self.sizes, self.draw = server, prompts, sizes, draw
        self.hits = False  # whether prefixes are cached, and the server tells it
        self.salts = False  # whether another salt makes a prompt cold
        self._round = 0
        self.relations: dict[str, Callable[[Reference], Iterator[Seen]]] = {
            AGAIN: self._again, PREFIX: self._prefix, COMPANY: self._company, CACHED_COMPANY: self._cached_company,
            BURST: self._burst, TURN: self._turn,
        }  # fmt: skip

    def check_salts(self) -> None:
        """What salts do is seen, not believed: a server accepts a field that it does not know."""
        facts = self.server.facts
        tokens = self.prompts.fresh(min(max(4 * facts.block, 128), facts.longest or 1 << 20) - 1)
        mine = self.prompts.salt()
        first, *again = (self.server.ask(Question(tokens, mine, 1, "is anything cached?")) for _ in range(4))
        other = self.server.ask(Question(tokens, self.prompts.salt(), 1, "do salts part the cache?"))
        self.hits = any(answer.cached for answer in again)
        self.salts = first.cached in (0, None) and not other.cached

    def floor(self, length: int) -> list[float]:
        """How far answers move with the shape of a batch alone: cold, alone and beside equals of the same length."""
        found = []
        tokens = self.prompts.fresh(length)
        alone = self._ask(tokens, why="floor: alone")
        for count in (2, 3, min(5, self.sizes.width)):
            others = [self._question(self.prompts.fresh(length), why="floor") for _ in range(count - 1)]
            answers = self.server.ask_all([*others, self._question(tokens, why=f"floor: one of {count} equals")], 0)
            found.append(distance(alone, answers[-1]))
        return found

    def reference(self) -> Reference:
        """A new prompt, cold and alone."""
        self._round += 1
        tokens = self.prompts.fresh(self.sizes.length - self._round % 3)
        question = self._question(tokens, why="a prompt, cold and alone")
        answer = self.server.ask(question)
        if answer.cached:
            raise Refused(f"a prompt that nobody has sent before was found in the cache ({answer.cached} tokens)")
        return Reference(question, answer)

    def look(self, relation: str, reference: Reference) -> Seen:
        """The worst of what this relation does to the prompt."""
        seen = []
        try:
            for each in self.relations[relation](reference):
                seen.append(each)
        except Refused as error:
            seen.append(Seen(None, str(error)))
        figures = [each for each in seen if each.moved is not None]
        return max(figures, key=lambda each: each.moved or 0.0) if figures else seen[0]

    # The relations

    def _again(self, reference: Reference) -> Iterator[Seen]:
        question = reference.question
        for _ in range(3):  # the state of a hybrid model is cached when its prefix is seen once more
            answer = self.server.ask(Question(question.tokens, question.salt, _NEW, "the same prompt again"))
            if answer.cached:
                break
        yield self._hit(reference.answer, answer)

    def _prefix(self, reference: Reference) -> Iterator[Seen]:
        tokens = reference.question.tokens
        cuts = cuts_of(self.server.facts, len(tokens))
        for at in range(_CUTS):
            cut = cuts[(self._round * _CUTS + at) % len(cuts)]
            why = f"{cut} of {len(tokens)} tokens cached"
            yield self._hit(reference.answer, self.server.ask(self._cached(tokens, cut, why)))

    def _company(self, reference: Reference) -> Iterator[Seen]:
        tokens, cached = reference.question.tokens, reference.question
        for first in (True, False):
            yield from self._cold()
            mine = self._question(tokens, why="cold, beside a longer, a shorter, a tiny and a cached prompt")
            others = [self._fresh(_SHORT), self._fresh(_TINY), Question(cached.tokens, cached.salt, _NEW, cached.why)]
            company = self._fit([self._fresh(self.sizes.length), mine, *others], mine)
            if not first:
                company = [*(each for each in company if each is not mine), mine]
            answer = self.server.ask_all(company)[company.index(mine)]
            yield self._cold_answer(reference.answer, answer)

    def _cached_company(self, reference: Reference) -> Iterator[Seen]:
        tokens = reference.question.tokens
        for cut in (len(tokens) * 6 // 7, len(tokens) // 2):
            mine = self._cached(tokens, cut, f"{cut} of {len(tokens)} tokens cached, beside a long, a short and a tiny prompt")
            company = [self._fresh(self.sizes.length), self._fresh(_SHORT), self._fresh(_TINY), mine]
            company = self._fit(company, mine)
            at = company.index(mine)
            answer = self.server.ask_all(company, cached=at)[at]
            yield self._hit(reference.answer, answer)

    def _burst(self, reference: Reference) -> Iterator[Seen]:
        yield from self._cold()
        mine = self._question(reference.question.tokens, why="one of a burst")
        lengths = [self.draw.randrange(8, max(9, self.sizes.length // 2)) for _ in range(self.sizes.width - 1)]
        burst = [*map(self._fresh, lengths), mine]
        self.draw.shuffle(burst)
        burst = self._fit(burst, mine)
        yield self._cold_answer(reference.answer, self.server.ask_all(burst, 0)[burst.index(mine)])

    def _turn(self, reference: Reference) -> Iterator[Seen]:
        yield from self._cold()
        block, whole = self.server.facts.block, reference.question.tokens
        # Ends shortly before the end of a page, so that what the model says fills it
        length = len(whole) // block * block - min(8, block // 2) if block < len(whole) else len(whole)
        salt = self.prompts.salt()
        said = self.server.ask(Question(whole[:length], salt, _TURN, "a turn of a conversation"))
        tokens = (*whole[:length], *said.tokens, *self.prompts.fresh(_TINY))
        cold = self._ask(tokens, why="the next turn, cold")
        answer = self.server.ask(Question(tokens, salt, _NEW, "the next turn, with the last answer cached"))
        yield self._hit(cold, answer, least=length + 1)

    # What they are made of

    def _question(self, tokens: tuple[int, ...], why: str) -> Question:
        return Question(tokens, self.prompts.salt(), _NEW, why)

    def _ask(self, tokens: tuple[int, ...], why: str) -> Answer:
        return self.server.ask(self._question(tokens, why))

    def _fresh(self, length: int) -> Question:
        length = max(2, min(length, self.sizes.length))
        return self._question(self.prompts.fresh(length), f"company of {length} tokens")

    def _fit(self, questions: list[Question], mine: Question) -> list[Question]:
        """As many of them as may be in flight."""
        left = self.sizes.in_flight - len(mine.tokens)
        kept: list[Question] = []
        for question in questions:
            if question is not mine:
                if left < len(question.tokens) or len(kept) >= self.sizes.width:
                    continue
                left -= len(question.tokens)
            kept.append(question)
        return kept

    def _cached(self, tokens: tuple[int, ...], cut: int, why: str) -> Question:
        """The question whose first `cut` tokens have been sent before."""
        salt = self.prompts.salt()
        for _ in range(2):
            self.server.ask(Question(tokens[:cut], salt, 1, f"a prefix of {cut} tokens"))
        return Question(tokens, salt, _NEW, why)

    def _cold(self) -> Iterator[Seen]:
        if not self.salts:
            raise Refused("this server's cache cannot be parted by salts, so a prompt is cold once only")
        yield from ()

    def _cold_answer(self, reference: Answer, answer: Answer) -> Seen:
        if answer.cached:
            return Seen(None, f"{answer.cached} tokens were found in the cache, and none should have been")
        return Seen(distance(reference, answer))

    def _hit(self, reference: Answer, answer: Answer, least: int = 1) -> Seen:
        if answer.cached is None:
            told = "its metrics counted the requests of others, too" if self.hits else "the server does not tell what it found"
            return Seen(None, f"no proof that the cache was hit: {told}")
        if answer.cached < least:
            return Seen(None, f"only {answer.cached} tokens were found in the cache")
        return Seen(distance(reference, answer))


@dataclass(frozen=True)
class Reference:
    question: Question
    answer: Answer


def cuts_of(facts: Facts, length: int) -> list[int]:
    """Where a prefix may end, so that page, chunk and window are met exactly, and one beside."""
    page = facts.block
    last = (length - 1) // page * page
    found = {page, 2 * page + 1, length // 2, length * 6 // 7, last, last - page + 1, length - 1}
    for border in (facts.chunk, facts.window):
        found |= {border - 1, border, border + 1} if border else set()
    inside = sorted(cut for cut in found if page <= cut < length)
    return inside or [max(1, length - 1)]
