"""What `bench` measures: the shapes, their inputs on a device, the bytes that must move, and the float64 results.

Values are bf16 with a head size of 128. Inputs are drawn at random; rows that no op may use hold NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

HEAD_SIZE = 128
KV_LEN = 512  # of a request that has KV; no op here reads it
_CHUNK = 1024  # tokens that are compared at a time: float64 of all would not fit
_INF = math.inf
_EPS = torch.finfo(torch.bfloat16).eps / 2  # one rounding to bf16


@dataclass(frozen=True)
class Work:
    """One row of the table: a shape, and which part of it is empty."""

    name: str
    family: str  # "merge", "fix-up", "one pass", "base 2" or "copy"
    tokens: int  # of a copy: bytes
    heads: int
    query_lens: tuple[int, ...] = ()
    kv_lens: tuple[int, ...] = ()
    context: int | None = None  # prefill_tokens_with_context

    @property
    def empty(self) -> int:
        """Tokens without KV."""
        return sum(q for q, kv in zip(self.query_lens, self.kv_lens, strict=True) if kv == 0)

    @property
    def bytes(self) -> int:
        """The least that must be read and written."""
        token = self.heads * (HEAD_SIZE * 2 + 4)  # values and LSE
        if self.family == "copy":
            return 2 * self.tokens
        if self.family == "fix-up":
            return self.empty * token
        with_prefix = (self.tokens if self.context is None else self.context) - self.empty
        return (2 * self.tokens + with_prefix) * token

    def inputs(self, device: str = "cuda") -> Inputs:
        """New inputs."""
        if self.family == "copy":
            return CopyInputs(self, device)
        return FixupInputs(self, device) if self.family == "fix-up" else MergeInputs(self, device)


def merge(tokens: int, heads: int, *, half: bool = False) -> Work:
    name = f"merge {tokens} x {heads}" + (", half without context" if half else "")
    return Work(name, "merge", tokens, heads, context=tokens // 2 if half else None)


def base2(tokens: int, heads: int) -> Work:
    return Work(f"LSE in base 2, {tokens} x {heads}", "base 2", tokens, heads)


def fixup(name: str, heads: int, query_lens: list[int], empty: list[bool]) -> Work:
    kv_lens = tuple(0 if none else KV_LEN for none in empty)
    return Work(f"empty rows, {name}, {heads} heads", "fix-up", sum(query_lens), heads, tuple(query_lens), kv_lens)


def one_pass(requests: int, length: int, heads: int) -> Work:
    """Every other request without KV."""
    kv_lens = tuple(0 if i % 2 else KV_LEN for i in range(requests))
    name = f"one pass, {requests} x {length}, half empty, {heads} heads"
    return Work(name, "one pass", requests * length, heads, (length,) * requests, kv_lens)


MERGES = (merge(512, 16), merge(2048, 16), merge(8192, 16), merge(8192, 128), merge(8192, 128, half=True), merge(32768, 128))
SKEWED = fixup("1 x 16384 with KV, 63 x 16", 128, [16] * 31 + [16384] + [16] * 32, [True] * 31 + [False] + [True] * 32)
UNSKEWED = fixup("1 x 16 with KV, 63 x 16", 128, [16] * 64, [True] * 31 + [False] + [True] * 32)
FIXUPS = (
    fixup("8 x 1024, 4 empty", 16, [1024] * 8, [True, False] * 4),
    fixup("64 x 128, 1 empty", 128, [128] * 64, [False] * 40 + [True] + [False] * 23),
    fixup("16 x 2048, 8 empty", 128, [2048] * 16, [True, False] * 8),
    SKEWED,
    UNSKEWED,
)
ONE_PASSES = (one_pass(8, 1024, 16), one_pass(8, 1024, 128), one_pass(16, 2048, 128))
BASES = (base2(512, 16), base2(2048, 16), base2(8192, 128))
COPY = Work("copy of 1 GiB", "copy", 1 << 30, 1)
COPIES = tuple(Work(f"copy that moves {w.bytes / 1e6:.0f} MB", "copy", w.bytes // 2, 1) for w in MERGES if w.context is None)
WORKS = (*MERGES, *FIXUPS, *ONE_PASSES, *BASES, *COPIES)


@dataclass(frozen=True)
class Candidate:
    """One way to do a work. `run` is what is timed; `prepare` brings what it takes for granted, untimed."""

    name: str
    run: Callable[[Any], object]
    ours: bool = False
    base2: bool = False
    prepare: Callable[[Any], object] | None = None
    note: str = ""


class Inputs:
    """Tensors of one work. `poison` spoils the results of an earlier run, `error` judges those of the last one."""

    def poison(self) -> None:
        raise NotImplementedError

    def error(self, base2: bool = False) -> float:
        """The largest error in units of the largest that rounding explains: above 1 is wrong."""
        raise NotImplementedError


def _values(work: Work, device: str) -> torch.Tensor:
    return torch.randn(work.tokens, work.heads, HEAD_SIZE, device=device, dtype=torch.bfloat16)


class Batch:
    """The index tensors that engines pass, and which tokens have no KV."""

    def __init__(self, work: Work, device: str) -> None:
        def ints(numbers: Iterable[int]) -> torch.Tensor:
            return torch.tensor([*numbers], dtype=torch.int32, device=device)

        self.kv_lens = ints(work.kv_lens)
        self.cum_seq_lens, self.cum_kv_lens = (ints(accumulate(n, initial=0)) for n in (work.query_lens, work.kv_lens))
        self.max_seq_len = max(work.query_lens, default=0)
        self.empty = torch.repeat_interleave(self.kv_lens == 0, ints(work.query_lens))  # bool [tokens]


class FixupInputs(Inputs):
    def __init__(self, work: Work, device: str = "cuda") -> None:
        self.batch = Batch(work, device)
        self.out = _values(work, device)
        self.lse = torch.randn(work.tokens, work.heads, device=device)
        self._before: tuple[torch.Tensor, torch.Tensor] | None = None

    def poison(self) -> None:
        self.out[self.batch.empty] = math.nan
        self.lse[self.batch.empty] = math.nan
        if self._before is None:
            self._before = self.out.clone(), self.lse.clone()

    def error(self, base2: bool = False) -> float:
        assert self._before is not None, "poison first"
        rows = self.batch.empty
        right = bool((self.out[rows] == 0).all() & (self.lse[rows] == -_INF).all())
        # The other rows hold no NaN, so == compares all there is.
        untouched = all(bool((a[~rows] == b[~rows]).all()) for a, b in zip((self.out, self.lse), self._before, strict=True))
        self._before = None
        return 0.0 if right and untouched else _INF


class MergeInputs(Inputs):
    def __init__(self, work: Work, device: str = "cuda") -> None:
        self.work, self.batch = work, Batch(work, device)
        self.output, self.prefix, self.suffix = (_values(work, device) for _ in "ops")
        shape = work.heads, work.tokens
        self.output_lse, self.prefix_lse, self.suffix_lse = (torch.randn(shape, device=device) for _ in "ops")
        # For fix-ups that want the LSE as [tokens, heads].
        self.token_major_lse = torch.randn(shape[::-1], device=device) if work.family == "one pass" else None
        self.unread = self.batch.empty if work.query_lens else torch.zeros(work.tokens, dtype=torch.bool, device=device)
        if work.context is not None:
            self.unread[work.context :] = True

    def poison(self) -> None:
        self.output.fill_(math.nan)
        self.output_lse.fill_(math.nan)
        self.prefix[self.unread] = math.nan
        self.prefix_lse[:, self.unread] = math.nan

    def error(self, base2: bool = False) -> float:
        return max(self._error_of(slice(at, at + _CHUNK), base2) for at in range(0, self.work.tokens, _CHUNK))

    def _error_of(self, tokens: slice, base2: bool) -> float:
        unit, empty = (math.log(2) if base2 else 1.0), self.unread[tokens]
        x = self.prefix_lse[:, tokens].double().mul(unit).masked_fill(empty, -_INF)
        s = self.suffix_lse[:, tokens].double().mul(unit)
        lse = torch.logaddexp(x, s)
        weights = [torch.exp(part - lse).t()[:, :, None] for part in (x, s)]
        a = (self.prefix[tokens].double() * weights[0]).masked_fill(empty[:, None, None], 0)
        b = self.suffix[tokens].double() * weights[1]
        # Relative to the terms, not to their sum; and a few roundings in float32 before the one to bf16.
        of_values = _largest(self.output[tokens].double() - (a + b), (a.abs() + b.abs()) * (_EPS + 1e-6) + 1e-30)
        return max(of_values, _largest(self.output_lse[:, tokens].double() - lse, lse.abs() * 3e-7 + 1e-6))


class CopyInputs(Inputs):
    def __init__(self, work: Work, device: str = "cuda") -> None:
        self.copied = torch.randint(127, (work.tokens,), dtype=torch.int8, device=device)
        self.copy = torch.empty_like(self.copied)

    def poison(self) -> None:
        self.copy.fill_(-1)

    def error(self, base2: bool = False) -> float:
        return 0.0 if torch.equal(self.copy, self.copied) else _INF


def _largest(difference: torch.Tensor, bound: torch.Tensor) -> float:
    """Infinite where anything is NaN, as what was not written is."""
    return float((difference.abs() / bound).nan_to_num(nan=_INF, posinf=_INF).max())
