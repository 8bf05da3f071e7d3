"""Launches of kernels as JSON: what an entry point was given, without the numbers that mean nothing.

Integers (lengths, pages, slots), masks and short float tensors (scales, sinks, LSEs) are kept as they are. Of queries, keys,
values and caches shape, strides, alignment and dtype are kept, and a replay draws their elements anew: in the recording run
they were drawn, too. So a file has no tensors, needs no pickle, and a launch takes a few KB.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

#: Launch = {"entry": name, "new": call or None, "plan": [calls] or None, "call": call}, call = {"of": method, "args", "kwargs"}
Launch = dict[str, Any]

_WHOLE = {"float32": 512, "float64": 512}  # elements up to which floats are kept: scales, sinks, LSEs
_SHORT = 16  # the same of narrower ones
_LONGEST = 24_000  # characters of a launch: longer ones are not kept


class Unrecordable(TypeError):
    """An argument that a file cannot hold."""


@dataclass(frozen=True)
class EntryPoint:
    """Where the engine calls a kernel.

    stand_in, real: "module:name"; `real` on a machine with a GPU. bound: what the engine has bound, where it is not `stand_in`
    itself. named: only names of this end are meant. load: modules to import before.
    writes: names of arguments that it writes; keeps: those of them in which nothing else may change.
    plans, runs: names of methods, where it is a class; a function with `plans` plans for such an object.
    device: names of a plan's tensors that lie on the GPU, None for all.
    buffers: of a function that plans, argument -> the buffer that the object was made with, and in which the engine has put it.
    made: argument -> the entry point whose result it is.
    like: whether results are compared; without, only their shapes are, and whether the launch is refused.
    alone: whether launches are kept for themselves; without, only as makers of what others are given.
    """

    name: str
    stand_in: str
    real: str
    bound: str = ""
    named: str = ""
    load: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    keeps: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    device: tuple[str, ...] | None = None
    buffers: dict[str, str] = field(default_factory=dict)
    made: dict[str, str] = field(default_factory=dict)
    like: bool = True
    alone: bool = True


def encode(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _tensor(value.detach().as_subclass(torch.Tensor))
    if isinstance(value, (tuple, list)):
        return {"tuple" if isinstance(value, tuple) else "list": [encode(one) for one in value]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": True}
    raise Unrecordable(type(value).__name__)


def _tensor(value: Any) -> dict[str, Any]:
    made = {
        "tensor": str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "stride": list(value.stride()),
        "shift": value.data_ptr() % 16 // value.element_size(),
    }  # fmt: skip
    if value.dtype.is_floating_point:
        if value.numel() <= _WHOLE.get(made["tensor"], _SHORT):
            made["values"] = [encode(float(f"{one:.9g}")) for one in value.reshape(-1).double().tolist()]
    elif value.dtype != torch.uint8 or value.dim() == 1:  # a cache has more dimensions than a mask
        made["values"] = value.reshape(-1).tolist()
    return made


def decode(value: Any, device: Any, seed: int, host: bool = False) -> Any:
    """As `encode` got it, tensors on `device`; elements that were not kept are drawn from `seed`. host: tensors on the CPU."""
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return _drawn(value, seed).to("cpu" if host else device) if _packed(value) else _placed(value, device, seed, host)
    if "float" in value:
        return float(value["float"])
    if "dtype" in value:
        return getattr(torch, value["dtype"])
    if "device" in value:
        return torch.device(device)
    if "workspace" in value:
        return torch.zeros(value["workspace"] if str(device) == "cpu" else 256 << 20, dtype=torch.uint8, device=device)
    kind = "tuple" if "tuple" in value else "list"
    parts = [decode(one, device, seed + 7919 * (at + 1), host) for at, one in enumerate(value[kind])]
    return tuple(parts) if kind == "tuple" else parts


def _packed(value: Any) -> bool:
    strides: list[int] = []
    expected = 1
    for size in reversed(value["shape"]):
        strides.insert(0, expected)
        expected *= size
    return strides == value["stride"] and not value["shift"]


def _placed(value: Any, device: Any, seed: int, host: bool) -> Any:
    """With its strides and its place in a line of 16 bytes: kernels ask for both. Its last row is whole: some read a table by
    the stride of its rows."""
    dtype, shape, stride, shift = (value[name] for name in ("tensor", "shape", "stride", "shift"))
    extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride)) if 0 not in shape else 0
    extent = max(extent, shape[0] * stride[0]) if extent and shape else extent
    memory = torch.zeros(shift + max(extent, 1), dtype=getattr(torch, dtype), device="cpu" if host else device)
    placed = memory[shift:].as_strided(shape, stride, shift)
    # What several elements share is written once
    once = tuple(slice(0, 1) if step == 0 else slice(None) for step in stride)
    placed[once] = _drawn(value, seed)[once].to(memory.device)
    return placed


def _drawn(value: Any, seed: int) -> Any:
    dtype, shape = getattr(torch, value["tensor"]), value["shape"]
    if "values" in value:
        if value["values"] == 0:
            return torch.zeros(shape, dtype=dtype)
        wide = torch.float64 if dtype.is_floating_point else dtype
        return torch.tensor([decode(one, "cpu", 0) for one in value["values"]], dtype=wide).to(dtype).reshape(shape)
    draw = torch.randn(shape, generator=torch.Generator().manual_seed(seed % (1 << 62)))
    if dtype == torch.uint8:  # a quantised cache, as its owner keeps it
        return draw.to(torch.float8_e4m3fn).view(torch.uint8)
    return draw.to(dtype)


def key(launch: Launch) -> str:
    """What makes two launches alike: dtypes, ranks, flags and signs of numbers; no sizes, but for pages and queries of one
    token; whether LSEs are infinite, for what merges them treats a side that is empty in another way."""
    return json.dumps([launch["entry"], [_flags(call) for call in calls(launch)]])


def calls(launch: Launch) -> Iterator[dict[str, Any]]:
    for call in (launch["new"], *(launch["plan"] or ()), launch["call"]):
        if call:
            yield call


def _flags(value: Any) -> Any:
    if isinstance(value, dict) and "tensor" in value:
        one = len(value["shape"]) == 4 and value["shape"][1] == 1
        flags = [value["tensor"], len(value["shape"]), _packed(value), 0 in value["shape"], *([one] if one else [])]
        floats = value["values"] if value["tensor"] == "float32" and isinstance(value.get("values"), list) else ()
        infinite = {isinstance(number, dict) for number in floats}
        return [*flags, *(sorted(infinite) if True in infinite else [])]
    if isinstance(value, dict):
        return {name: _flags(one) for name, one in value.items() if not name.startswith("_")}
    if isinstance(value, list):
        return [_flags(one) for one in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    return (value > 0) - (value < 0)


class Kept:
    """Of each key the launches with the longest descriptions, for these have most requests; at most `most`."""

    def __init__(self, most: int):
        self.most = most
        self.by_key: dict[str, dict[str, Launch]] = {}
        self.skipped: dict[str, int] = {}

    def offer(self, launch: Launch) -> None:
        said = json.dumps(launch)
        if len(said) > _LONGEST:
            self.skip(f"{launch['entry']}: longer than {_LONGEST} characters")
            return
        same = self.by_key.setdefault(key(launch), {})
        same[said] = launch
        if len(same) > self.most:
            del same[min(same, key=lambda one: (len(one), hashlib.sha256(one.encode()).digest()))]

    def skip(self, why: str) -> None:
        self.skipped[why] = self.skipped.get(why, 0) + 1

    def launches(self) -> list[Launch]:
        return [launch for same in self.by_key.values() for launch in same.values()]


def write(file: Path, about: dict[str, Any], kept: Kept) -> None:
    """Lines of JSON, the first of which says of what they are; compressed where the name ends in .xz; whole at any time."""
    launches = sorted(kept.launches(), key=lambda launch: (launch["entry"], json.dumps(launch)))
    part = file.with_name(file.name + ".part")
    lines = "".join(json.dumps(one, separators=(",", ":")) + "\n" for one in ({"about": about}, *launches)).encode()
    part.write_bytes(lzma.compress(lines, preset=9) if file.suffix == ".xz" else lines)
    part.replace(file)


def read(file: Path) -> tuple[dict[str, Any], list[Launch]]:
    """What a file is of, and its launches."""
    content = file.read_bytes()
    lines = (lzma.decompress(content) if file.suffix == ".xz" else content).decode().splitlines()
    about, *launches = map(json.loads, lines)
    return about["about"], launches
