"""Kernels beside their stand-ins, some of which go wrong: what `tests.differential.stand_ins` has to see."""

from __future__ import annotations

import os
import time

import torch

from tests.differential.launches import EntryPoint


def doubled(x, out=None):
    """Writes all rows but the last, which stay as they are."""
    out = torch.full_like(x, float("nan")) if out is None else out
    out[:-1] = 2 * x[:-1]
    return out


def wrong(x, out=None):
    result = doubled(x, out)
    result[0] *= 1.1
    return result


def other_last_row(x, out=None):
    """Right as far as anything is defined."""
    result = doubled(x, out)
    result[-1] = 7
    return result


def refuses(x, out=None):
    raise ValueError("this kernel does not take that")


def dies(x, out=None):
    os._exit(9)


def hangs(x, out=None):
    time.sleep(600)


def _entry(name, keeps=(), stand_in="doubled"):
    here = f"{__name__}:"
    return EntryPoint(name, here + stand_in, here + name.partition(" ")[0], writes=("out",), keeps=keeps)


ENTRY_POINTS = (
    _entry("doubled"),
    _entry("wrong"),
    _entry("other_last_row"),
    _entry("other_last_row of a cache", keeps=("out",)),
    _entry("refuses"),
    _entry("refuses as well", stand_in="refuses"),
    _entry("dies"),
    _entry("hangs"),
    _entry("nowhere"),
)
