"""The circumstances that must not matter: the same prompt cold and alone, and then in each of these."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .answers import Answer, Question, Refused, distance
from .client import Facts, Server
from .prompts import Prompts

AGAIN, PREFIX, COMPANY, CACHED_COMPANY, BURST, TURN, SAMPLES, LIMIT = (
    "again", "cached prefix", "in company", "cached, in company", "burst", "next turn", "samples", "context limit",
)  # fmt: skip
#: A prefix that is as much of the prompt as `again` finds in the cache
WHOLE = "all of it"
_NEW = 8  # tokens compared of each answer
_TURN = 24  # tokens that the model says before the next turn
_CUTS = 3  # of each prompt
_SAMPLES = 4
_SURE = math.log(0.5)  # a name that a model does not say for sure may be lost by rounding
_SHORT, _TINY = 600, 40  # tokens of the company. Some kernels take up to 512 new tokens for a decode


@dataclass(frozen=True)
class Seen:
    """moved: how far the answer moved, in nat; None where nothing could be compared, `why`. at: under which of the relation's
    circumstances. lost: the name that the answer should have said, and does not."""

    moved: float | None
    why: str = ""
    at: str = ""
    lost: str = ""


@dataclass(frozen=True)
class Sizes:
    """length: tokens of a prompt. width: requests at once. in_flight: tokens of all requests at once, at most."""

    length: int
    width: int
    in_flight: int


class Circumstances:
    """Asks one server. Every figure is of a prompt of its own."""

    def __init__(self, server: Server, prompts: Prompts, sizes: Sizes, draw: random.Random, limits: bool = False):
        self.server, self.prompts, self.sizes, self.draw = server, prompts, sizes, draw
        self.hits = False  # whether prefixes are cached, and the server tells it
        self.salts = False  # whether another salt makes a prompt cold
        self.needles = 0  # prompts of which the model, cold, said the name that it was asked for
        self._round = 0
        self._found: set[int] = set()  # how many tokens hits have found
        self.relations: dict[str, Callable[[Reference], Iterator[Seen]]] = {
            AGAIN: self._again, PREFIX: self._prefix, COMPANY: self._company, CACHED_COMPANY: self._cached_company,
            BURST: self._burst, TURN: self._turn, SAMPLES: self._samples,
        } | ({LIMIT: self._limit} if limits else {})  # fmt: skip

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
        tokens, name = self.prompts.with_needle(self._length())
        question = self._question(tokens, why="a prompt, cold and alone")
        answer = self.server.ask(question)
        if answer.cached:
            raise Refused(f"a prompt that nobody has sent before was found in the cache ({answer.cached} tokens)")
        known = _said(answer, name)
        self.needles += bool(known)
        return Reference(question, answer, known)

    def _length(self) -> int:
        """Up to a quarter less than asked for, so that its last chunk leaves company more of a step, or less, whatever the
        budget of a step is, which no server tells. With speculation, so that where all of it is cached, as much is left as a
        step verifies, one less and one more."""
        facts, turn = self.server.facts, self._round % 3
        length = self.sizes.length - self.draw.randrange(max(1, self.sizes.length // 4))
        if not facts.drafts or facts.block < facts.drafts + 3 or length < 2 * facts.block:
            return max(2, length - turn)
        return length // facts.block * facts.block - facts.block + facts.drafts + turn

    def look(self, relation: str, reference: Reference) -> list[Seen]:
        """What this relation does to the prompt, under each of its circumstances; at least one."""
        seen = []
        try:
            for each in self.relations[relation](reference):
                seen.append(each)
        except Refused as error:
            seen.append(Seen(None, str(error)))
        return seen

    # The relations

    def _again(self, reference: Reference) -> Iterator[Seen]:
        question = reference.question
        for _ in range(3):  # the state of a hybrid model is cached when its prefix is seen once more
            answer = self.server.ask(Question(question.tokens, question.salt, _NEW, "the same prompt again"))
            if answer.cached:
                break
        yield self._hit(reference, answer)

    def _prefix(self, reference: Reference) -> Iterator[Seen]:
        tokens = reference.question.tokens
        cuts = list(cuts_of(self.server.facts, len(tokens)).items())
        for at in range(min(_CUTS, len(cuts))):
            cut, name = cuts[(self._round * _CUTS + at) % len(cuts)]
            why = f"{cut} of {len(tokens)} tokens cached"
            yield self._hit(reference, self.server.ask(self._cached(tokens, cut, why)), at=name)

    def _company(self, reference: Reference) -> Iterator[Seen]:
        tokens, cached = reference.question.tokens, reference.question
        for place in ("first" if self._round % 2 else "second", "last"):
            yield from self._cold()
            mine = self._question(tokens, why="cold, beside a longer, a shorter, a tiny and a cached prompt")
            others = [self._fresh(_SHORT), self._fresh(_TINY), Question(cached.tokens, cached.salt, _NEW, cached.why)]
            company = [each for each in self._fit([self._fresh(self.sizes.length), mine, *others], mine) if each is not mine]
            company.insert({"first": 0, "second": 1, "last": len(company)}[place], mine)
            answer = self.server.ask_all(company)[company.index(mine)]
            yield self._cold_answer(reference, answer, place)

    def _cached_company(self, reference: Reference) -> Iterator[Seen]:
        tokens = reference.question.tokens
        for at, cut in enumerate((len(tokens) * 6 // 7, len(tokens) // 2)):
            mine = self._cached(tokens, cut, f"{cut} of {len(tokens)} tokens cached, beside a long, a short and a tiny prompt")
            others = [self._fresh(self.sizes.length), self._fresh(_SHORT), self._fresh(_TINY)]
            first = (self._round + at) % 2
            company = self._fit([mine, *others] if first else [*others, mine], mine)
            place = company.index(mine)
            answer = self.server.ask_all(company, cached=place)[place]
            yield self._hit(reference, answer, at="first" if first else "last")

    def _burst(self, reference: Reference) -> Iterator[Seen]:
        yield from self._cold()
        mine = self._question(reference.question.tokens, why="one of a burst")
        lengths = [self.draw.randrange(8, max(9, self.sizes.length // 2)) for _ in range(self.sizes.width - 1)]
        burst = [*map(self._fresh, lengths), mine]
        self.draw.shuffle(burst)
        burst = self._fit(burst, mine)
        yield self._cold_answer(reference, self.server.ask_all(burst, 0)[burst.index(mine)])

    def _turn(self, reference: Reference) -> Iterator[Seen]:
        yield from self._cold()
        block, whole = self.server.facts.block, reference.question.tokens
        # Ends shortly before the end of a page, so that what the model says fills it
        length = len(whole) // block * block - min(8, block // 2) if block < len(whole) else len(whole)
        # A model with windows or states may find less than all whole pages, or in larger pages than it tells: it says more then
        for more in (_TURN, 2 * max(block, math.gcd(*self._found)) + _TURN):
            salt = self.prompts.salt()
            said = self.server.ask(Question(whole[:length], salt, more, "a turn of a conversation"))
            tokens = (*whole[:length], *said.tokens, *self.prompts.fresh(_TINY))
            answer = self.server.ask(Question(tokens, salt, _NEW, "the next turn, with the last answer cached"))
            if answer.cached is None or answer.cached > length:
                break
        question = self._question(tokens, why="the next turn, cold")
        yield self._hit(Reference(question, self.server.ask(question)), answer, least=length + 1)

    def _samples(self, reference: Reference) -> Iterator[Seen]:
        salt = self.prompts.salt()
        question = Question(reference.question.tokens, salt, _NEW, f"{_SAMPLES} samples of one prompt", _SAMPLES)
        answer = self.server.ask(question)
        if len(answer.others) != _SAMPLES - 1:
            raise Refused(f"{len(answer.others) + 1} answers where {_SAMPLES} samples were asked for")
        for at, each in enumerate((answer, *answer.others)):
            yield self._seen(reference, each, "the first" if not at else "another")

    def _limit(self, _: Reference) -> Iterator[Seen]:
        """A prompt whose answer ends at the context limit, cold and with the rest of it cached."""
        yield from self._cold()
        longest = self.server.facts.longest
        if not longest or longest < 2 * _NEW:
            raise Refused("the server does not tell its context limit")
        length = longest - _NEW
        if length > self.sizes.in_flight:
            raise Refused(
                f"a prompt of {length} tokens is more than may be in flight, {self.sizes.in_flight}: --at-once would allow it"
            )
        tokens, name = self.prompts.with_needle(length)
        question = self._question(tokens, f"{length} tokens of at most {longest}, cold")
        cold = self.server.ask(question)
        known = _said(cold, name)
        whole = Reference(question, cold, known)
        again = Question(tokens, question.salt, _NEW, f"{length} tokens of at most {longest}, again")
        yield self._hit(whole, self.server.ask(again), at=WHOLE)
        half = self._cached(tokens, length // 2, f"{length} tokens of at most {longest}, half of them cached")
        yield self._hit(whole, self.server.ask(half), at="half")

    # What they are made of

    def _question(self, tokens: tuple[int, ...], why: str) -> Question:
        return Question(tokens, self.prompts.salt(), _NEW, why)

    @staticmethod
    def _seen(reference: Reference, answer: Answer, at: str = "") -> Seen:
        lost = reference.name if reference.name and not answer.not_finite and reference.name not in answer.text else ""
        return Seen(distance(reference.answer, answer), at=at, lost=lost)

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

    def _cold_answer(self, reference: Reference, answer: Answer, at: str = "") -> Seen:
        if answer.cached:
            return Seen(None, f"{answer.cached} tokens were found in the cache, and none should have been")
        return self._seen(reference, answer, at)

    def _hit(self, reference: Reference, answer: Answer, least: int = 1, at: str = "") -> Seen:
        if answer.cached is None:
            told = "its metrics counted the requests of others, too" if self.hits else "the server does not tell what it found"
            return Seen(None, f"no proof that the cache was hit: {told}")
        self._found.add(answer.cached)
        if answer.cached < least:
            return Seen(None, f"only {answer.cached} tokens were found in the cache")
        return self._seen(reference, answer, at)


def _said(answer: Answer, name: str) -> str:
    """The name, if the answer says it for sure."""
    sure = name and not answer.not_finite and name in answer.text and max(answer.listed[0].values()) > _SURE
    return name if sure else ""


@dataclass(frozen=True)
class Reference:
    """name: what the answer says because an early page does; "": nothing."""

    question: Question
    answer: Answer
    name: str = ""


def cuts_of(facts: Facts, length: int) -> dict[int, str]:
    """Where a prefix may end, and what is there: page, chunk, window and a step of speculation exactly, and one beside."""
    page = facts.block
    last = (length - 1) // page * page
    found = {page: "a page", 2 * page + 1: "two pages, 1 more", length // 2: "half", length * 6 // 7: "six sevenths"}
    borders: list[tuple[str, int | None]] = [("a chunk", facts.chunk), ("a window", facts.window)]
    if facts.drafts:
        borders.append(("all but a step of speculation", length - 1 - facts.drafts))
    for name, border in borders:
        if border:
            found |= {border - 1: f"{name}, 1 less", border: name, border + 1: f"{name}, 1 more"}
    found |= {last - page + 1: "all but a page", last: WHOLE, length - 1: WHOLE}
    inside = {cut: WHOLE if cut >= last else found[cut] for cut in sorted(found) if page <= cut < length}
    return inside or {max(1, length - 1): WHOLE}
