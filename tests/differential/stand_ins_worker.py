"""One entry point's launches, in a process of its own: the stand-in on the CPU, the kernel on the GPU, what is between them.

A stand-in runs twice over memory that held other things before: where both results are the same to the bit, they are defined.
Elsewhere nothing is compared but what an entry point `keeps`: what the stand-in left alone there, the kernel has to, too.
"""

from __future__ import annotations

import importlib
import inspect
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from . import reference
from .launches import EntryPoint, Launch, decode, read
from .recorder import found
from .stand_ins import entry_points

_FP8 = (torch.float8_e4m3fn, torch.uint8)
_LSE = (5e-3, 2e-2)  # absolute, of LSEs; of FP8 queries and keys, whose products are added up in fewer bits


class Result(NamedTuple):
    """What a launch returned and wrote, by name, on the CPU."""

    tensors: dict[str, Any]


class Worst(NamedTuple):
    error: float
    of: float
    where: str


def main(file: Path, name: str, numbers: list[int], device: str, check: bool) -> None:
    torch.set_num_threads(1)  # the stand-ins of several processes share the cores with compilers
    about, launches = read(file)
    entries = entry_points(about)
    entry = entries[name]
    say(machine={} if check or device == "cpu" else _machine(about["engine"]))
    try:
        for module in () if check else entry.load:
            importlib.import_module(module)
        real = None if check else found(entry.real)
    except Exception as error:
        for number in numbers:
            say(launch=number, outcome="absent", why=_said(error))
        say(end=True)
        return
    for number in numbers:
        say(begun=number)
        result = one(entries, entry, launches[number], number, real, "cpu" if check else device)
        say(launch=number, **result)
        if result.get("lost"):
            return
    say(end=True)


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def one(
    entries: dict[str, EntryPoint], entry: EntryPoint, launch: Launch, number: int, real: Any, device: str
) -> dict[str, Any]:
    """What comes out of a launch. real: the kernel; None for the stand-in itself."""
    refused = None
    try:
        expected = [_result(entries, entry, launch, number, None, "cpu", before) for before in (1, 2)]
    except Exception as error:
        refused = _said(error)
    try:
        got = _result(entries, entry, launch, number, real, device, 1)
    except Exception as error:
        if device == "cuda" and _lost():
            return {"outcome": "died", "why": _said(error), "lost": True}
        if isinstance(error, (ImportError, AttributeError)) and ("_C" in str(error) or isinstance(error, ImportError)):
            return {"outcome": "absent", "why": _said(error)}
        return {"outcome": "both refuse" if refused else "refused", "why": _said(error)}
    if refused:  # by the stand-in
        return {"outcome": "differs", "why": f"the stand-in alone refuses: {refused}"}
    return _compared(entry, launch, *expected, got, number)


def _result(entries: dict[str, EntryPoint], entry: EntryPoint, launch: Launch, number: int, real: Any, device: str,
            before: int) -> Result:  # fmt: skip
    """real: the kernel, or None for the stand-in. before: which of two fillings memory has that nobody wrote yet."""
    call, kernel = launch["call"], real or found(entry.stand_in)
    if launch["new"]:
        args, buffers = _arguments(launch["new"], device, number)
        owner = kernel(*args, **buffers)
        for plan in launch["plan"]:
            args, kwargs = _plan_arguments(entry, plan, device, number)
            if plan["of"] in entries:  # a function, of the wrapper
                planner = entries[plan["of"]]
                for name, buffer in planner.buffers.items():
                    buffers[buffer][: len(kwargs[name])].copy_(kwargs[name])
                found(planner.real if real else planner.stand_in)(owner, *args, **kwargs)
            else:
                getattr(owner, plan["of"])(*args, **kwargs)
        kernel = getattr(owner, call["of"])
    args, kwargs = _arguments(call, device, number)
    for name in entry.made:
        if (maker := call["kwargs"].get(name)) is not None:
            kwargs[name] = _made(entries[maker["made"]], maker, device, number, real is not None)
    named = _named(found(entry.stand_in), call, args, kwargs)
    written = {name: named[name] for name in entry.writes if isinstance(named.get(name), torch.Tensor)}
    for at, (name, tensor) in enumerate(written.items()):
        _fill(tensor, 1000 * before + at, name in entry.keeps)
    returned = kernel(*args, **kwargs)
    if device != "cpu":
        torch.cuda.synchronize()
    parts = returned if isinstance(returned, (tuple, list)) else (returned,)
    tensors = {f"result {at}": one for at, one in enumerate(parts) if isinstance(one, torch.Tensor)}
    return Result({name: one.detach().cpu().clone() for name, one in {**tensors, **written}.items()})


def _arguments(call: dict[str, Any], device: str, number: int, host: bool = False) -> tuple[list[Any], dict[str, Any]]:
    seeds = (number * 1_000_003 + 17 * at for at in range(1, 1000))
    args = [decode(one, device, next(seeds), host) for one in call["args"]]
    return args, {
        name: decode(one, device, next(seeds), host)
        for name, one in call["kwargs"].items()
        if not (isinstance(one, dict) and "made" in one)
    }


def _plan_arguments(entry: EntryPoint, plan: dict[str, Any], device: str, number: int) -> tuple[list[Any], dict[str, Any]]:
    """Lengths of a plan may lie on the host."""
    if entry.device is None:
        return _arguments(plan, device, number)
    args, kwargs = _arguments(plan, device, number, host=True)
    return args, {name: value.to(device) if name in entry.device else value for name, value in kwargs.items()}


def _made(maker: EntryPoint, said: dict[str, Any], device: str, number: int, real: bool) -> Any:
    args, kwargs = _arguments(said["call"], device, number)
    made = found(maker.real if real else maker.stand_in)(*args, **kwargs)
    return made if said["at"] is None else made[said["at"]]


def _named(stand_in: Any, call: dict[str, Any], args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments by the names that the stand-in gives them."""
    if isinstance(stand_in, type):
        function: Any = getattr(stand_in, call["of"])
        given = inspect.signature(function).bind(None, *args, **kwargs).arguments
    else:
        given = inspect.signature(stand_in).bind(*args, **kwargs).arguments
    more: dict[str, Any] = {}
    for value in given.values():
        if isinstance(value, dict):
            more |= value
    return {**given, **more}


def _fill(tensor: Any, seed: int, cache: bool) -> None:
    """Memory that is not yet written; a cache may hold any bytes, but no NaN."""
    if not tensor.numel():
        return
    noise = torch.randint(0, 96, tensor.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.uint8)
    tensor.copy_((noise if tensor.dtype == torch.uint8 else noise.float() + 30).to(tensor.dtype).to(tensor.device))


def _compared(entry: EntryPoint, launch: Launch, one: Result, other: Result, got: Result, number: int) -> dict[str, Any]:
    narrow = '"float8_e4m3fn"' in json.dumps([launch["call"], launch["plan"]])
    worst: Worst | None = None
    for name, true in one.tensors.items():
        if name not in got.tensors:
            return {"outcome": "differs", "why": f"{name}: the kernel returns no tensor"}
        found_ = got.tensors[name]
        if tuple(found_.shape) != tuple(true.shape):
            return {"outcome": "differs", "why": f"{name}: {tuple(found_.shape)} in place of {tuple(true.shape)}"}
        if not entry.like:
            continue
        if found_.dtype != true.dtype:
            return {"outcome": "differs", "why": f"{name}: {found_.dtype} in place of {true.dtype}"}
        if name in entry.keeps and (spoiled := _spoiled(true, other.tensors[name], found_, number, name, entry)):
            return {"outcome": "differs", "why": spoiled}
        compared = _worst(name, true, other.tensors[name], found_, narrow)
        if compared and (worst is None or compared.error / compared.of > worst.error / worst.of):
            worst = compared
    if not entry.like:
        return {"outcome": "agrees", "why": "shape alone"}
    if worst is None:
        return {"outcome": "undefined"}
    figures = {"error": min(worst.error, 1e30), "of": worst.of, "in": worst.where}
    if not worst.error <= worst.of:
        return {"outcome": "differs", "why": f"{worst.where}: {worst.error:.3g}, at most {worst.of:.3g}", **figures}
    return {"outcome": "agrees", **figures}


def _spoiled(one: Any, other: Any, got: Any, number: int, name: str, entry: EntryPoint) -> str | None:
    """What the stand-in left alone in a cache, and the kernel did not."""
    before = torch.empty_like(one)
    _fill(before, 1000 + entry.writes.index(name), True)
    alone = _bits(one) != _bits(other)  # it kept what was there in both
    wrong = alone & (_bits(got) != _bits(before))
    return f"{name}: {int(wrong.sum())} elements were changed that are nobody's" if wrong.any() else None


def _bits(tensor: Any) -> Any:
    if tensor.dtype.is_floating_point:
        return tensor.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    return tensor


def _worst(name: str, one: Any, other: Any, got: Any, narrow: bool) -> Worst | None:
    """Where the kernel is farthest from the stand-in, of what is defined."""
    if not one.numel():
        return None
    if one.dtype == torch.uint8:
        one, other, got = (x.contiguous().view(torch.float8_e4m3fn) for x in (one, other, got))
    defined = (_bits(one) == _bits(other)) & ~one.double().isnan()
    if not defined.any():
        return None
    if one.dtype == torch.float32:  # an LSE
        true, found_ = one.double()[defined], got.double()[defined]
        off = (found_ - true).abs().masked_fill(found_ == true, 0.0).nan_to_num(float("inf"), float("inf"))
        return Worst(float(off.max()), _LSE[narrow], name)
    if one.dtype in _FP8:  # a value may round to its neighbour where another rounds to the other side
        true, found_ = one.double()[defined], got.double()[defined]
        off = ((found_ - true).abs() / true.abs().clamp_min(2**-6)).nan_to_num(float("inf"), float("inf"))
        return Worst(float(off.max()), 0.125, name)
    if not one.dtype.is_floating_point:
        return Worst(float((one != got)[defined].any()), 0.5, name)
    right = reference.tolerance(one.dtype).right + (torch.finfo(torch.float8_e4m3fn).eps / 2 if narrow else 0.0)
    rows = defined.flatten(0, -2).all(-1) if one.dim() > 1 else defined.all()[None]
    true, found_ = (x.double().reshape(-1, x.shape[-1])[rows] for x in (one, got))
    if not len(true):
        return None
    size = true.norm(dim=-1)
    off = (found_ - true).norm(dim=-1)
    off = torch.where(size > 0, off / size.clamp_min(1e-30), torch.where(off > 0, float("inf"), 0.0))
    return Worst(float(off.nan_to_num(float("inf"), float("inf")).max()), right, name)


def _lost() -> bool:
    """Whether the GPU's context is gone: then nothing of this process can be used."""
    try:
        torch.zeros(1, device="cuda").add_(1).cpu()
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0][:300]


def _machine(engine: str) -> dict[str, Any]:
    import importlib.metadata

    versions = {}
    for name in (engine, "torch", "flashinfer-python", "sglang-kernel", "triton"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"gpu": torch.cuda.get_device_name(), "python": sys.version.split()[0], **versions}
