"""How far two answers to one request are apart. An answer: tokens, log-probabilities {token: value}, how many were cached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

TOP = 20  # tokens compared of each answer
Answer = dict[str, Any]


def difference(right: Answer, seen: Answer) -> float:
    """Largest difference of a log-probability over the TOP tokens of the right answer.

    A token that the other does not list is less probable than all it lists: the difference is then a lower bound. Infinite
    where a log-probability is not a number."""
    return _apart(right["logprobs"], seen["logprobs"])


def second(right: Answer, seen: Answer) -> float:
    """`difference` of second tokens. Not a number where the first tokens differ: nothing can be said then."""
    return difference(right, seen) if right["tokens"][0] == seen["tokens"][0] else math.nan


def first_two(right: Answer, seen: Answer) -> float:
    """The larger `difference` of the first and, behind equal first tokens, the second token. logprobs: of every new token."""
    pairs = list(zip(right["logprobs"], seen["logprobs"]))
    return max(_apart(*pair) for pair in (pairs[:2] if right["tokens"][0] == seen["tokens"][0] else pairs[:1]))


def _apart(right: Mapping[str, float], seen: Mapping[str, float]) -> float:
    best = sorted(right, key=lambda token: right[token], reverse=True)[:TOP]
    floor = min(seen.values())
    each = [abs(right[token] - seen.get(token, floor)) for token in best]
    return max(each) if all(map(math.isfinite, each)) else math.inf


def distance(right: Answer, seen: Answer) -> float:
    """Root mean square of the differences of the tokens that both list."""
    return _distance(right["logprobs"], seen["logprobs"])


def decode_distance(right: Answer, seen: Answer) -> float:
    """`distance` of all new tokens but the first, which prefill gives. logprobs: of every new token."""
    return rms(_distance(*both) for both in zip(right["logprobs"][1:], seen["logprobs"][1:], strict=True))


def _distance(right: Mapping[str, float], seen: Mapping[str, float]) -> float:
    both = right.keys() & seen.keys()
    return rms(seen[token] - right[token] for token in both) if both else math.inf


def rms(values: Iterable[float]) -> float:
    """Root mean square."""
    return math.sqrt(statistics.fmean(value**2 for value in values))


def embedding(right: Answer, seen: Answer) -> float:
    """Relative distance of two embeddings."""
    off = math.dist(right["embedding"], seen["embedding"])
    return off / math.hypot(*right["embedding"]) if math.isfinite(off) else math.inf


def equal_tokens(right: Answer, seen: Answer) -> float:
    """How many tokens are equal before the first that is not."""
    return float(([x == y for x, y in zip(right["tokens"], seen["tokens"])] + [False]).index(False))


def other_tokens(right: Answer, seen: Answer) -> float:
    """1 where any token differs."""
    return float(right["tokens"] != seen["tokens"])


def accepted(_right: Answer, seen: Answer) -> float:
    """Tokens that a step with drafts has given."""
    return seen["accepted"]


def worst(values: Sequence[float]) -> float:
    """The largest; not a number where one is none."""
    return math.nan if any(map(math.isnan, values)) else max(values)


def half(values: Sequence[float]) -> float:
    """Above a limit where at least half of the figures are."""
    return statistics.median_high(values)


def inverse_mean(values: Sequence[float]) -> float:
    """One over the mean, of figures of which more is better."""
    mean = statistics.fmean(values)
    return 1 / mean if mean else math.inf


#: Student's t at 97.5 % for 1, 2, … degrees of freedom
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110,
    2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def ratio(patched: Sequence[float], stock: Sequence[float]) -> dict[str, Any]:
    """Mean ratio patched / stock of measurements taken in pairs, and its 95 % interval: a paired t interval of logarithms."""
    logs = [math.log(p / s) for p, s in zip(patched, stock, strict=True)]
    mean, half = statistics.fmean(logs), math.inf
    if len(logs) > 1:
        half = _T[min(len(logs) - 1, len(_T)) - 1] * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = math.exp(mean - half), math.exp(mean + half) if half < math.inf else math.inf
    return {"ratio": math.exp(mean), "low": low, "high": high, "pairs": len(logs)}
