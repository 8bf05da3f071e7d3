"""What a server is asked, what it answers, and how far two answers are apart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Log-probability by token id
Listed = Mapping[int, float]


@dataclass(frozen=True)
class Question:
    """A prompt of token ids. salt: requests with equal salts share their cache. why: said if the server dies under it.
    samples: answers that are asked for at once."""

    tokens: tuple[int, ...]
    salt: str = ""
    new: int = 8
    why: str = ""
    samples: int = 1


@dataclass(frozen=True)
class Answer:
    """listed: the most probable tokens at each new position. cached: tokens found in the cache, None where nobody says.
    not_finite: the server had no numbers to answer with. text: where the server has a tokenizer. verified: steps in which
    drafts were verified, where the answer tells it. others: the other samples."""

    tokens: tuple[int, ...] = ()
    listed: tuple[Listed, ...] = field(default=())
    cached: int | None = None
    not_finite: bool = False
    text: str = ""
    verified: int | None = None
    others: tuple[Answer, ...] = ()


class ProbeError(Exception):
    """The server could not be asked: one sentence for a user."""


class Refused(ProbeError):
    """The server lives, and does not answer this question."""


class Died(ProbeError):
    """The server does not answer any more."""

    def __init__(self, question: Mapping[str, Any], reason: str):
        super().__init__(f"the server died under this question: {question['why'] or 'a prompt'} ({reason})")
        self.question, self.reason = dict(question), reason


def distance(reference: Answer, other: Answer) -> float:
    """How far `other` has moved, in nat: the largest of its comparable positions, which end where the answers part."""
    if reference.not_finite or other.not_finite:
        return math.inf
    largest = 0.0
    for at, (left, right) in enumerate(zip(reference.listed, other.listed)):
        largest = max(largest, moved(left, right))
        if reference.tokens[at : at + 1] != other.tokens[at : at + 1]:
            break
    return largest


def moved(left: Listed, right: Listed) -> float:
    """Root mean square of the change of the log-probabilities of the tokens listed, weighted by probability.

    By way of the KL divergence over buckets: each token that both list, those that one side lists, and the rest. For small
    changes KL is half the variance, of which the rest has next to none: so it is taken per unit of probability that is listed.
    """
    if not all(map(math.isfinite, (*left.values(), *right.values()))) or not left or not right:
        return math.inf
    return max(_moved(left, right), _moved(right, left))


def _moved(left: Listed, right: Listed) -> float:
    p = [math.exp(left[token]) for token in left if token in right]
    q = [math.exp(right[token]) for token in left if token in right]
    for mine, theirs, ours in ((left, right, True), (right, left, False)):
        only = [math.exp(value) for token, value in mine.items() if token not in theirs]
        if only:  # the other side says only that none of them is more probable than the last that it lists, and what is left
            mass, rest = sum(only), 1 - sum(map(math.exp, theirs.values()))
            other = min(mass, len(only) * math.exp(min(theirs.values())), max(rest, 0.0))
            p.append(mass if ours else other)
            q.append(other if ours else mass)
    named = max(sum(p), sum(q), 1e-9)
    p.append(max(1 - sum(p), 1e-9))
    q.append(max(1 - sum(q), 1e-9))
    return math.sqrt(2 * max(_kl(p, q), 0.0) / named)


def _kl(p: Sequence[float], q: Sequence[float]) -> float:
    total_p, total_q = sum(p), sum(q)
    shares = ((a / total_p, b / total_q) for a, b in zip(p, q))
    return sum(a * math.log(a / max(b, 1e-12)) for a, b in shares if a > 0)
