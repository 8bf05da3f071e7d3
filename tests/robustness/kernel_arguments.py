"""The kernel ops with hostile arguments: a clear error and nothing written, or the right result; never an illegal access.

Runs on a GPU where there is one (also under `compute-sanitizer python -m tests.robustness --part kernel_arguments`), else
the checks and the torch reference run on the CPU. Sound arguments are drawn, then up to three of them are spoilt.
"""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from attnfix.kernels import fixup_zero_kv_rows, merge_attn_states
from tests.robustness import Row
from tests.support.kernel_cases import (
    DTYPES,
    VALUE_LAYOUTS,
    Guard,
    MergeInputs,
    bits,
    check_merge,
    lse_view,
    merge_oracle,
    values_view,
)

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SECONDS = 200.0
Arguments = dict[str, Any]


def run(quick: bool, say: Callable[[str], None]) -> list[Row]:
    seed = random.SystemRandom().randrange(2**32)
    say(f"seed {seed}, on {DEVICE}")
    warnings.simplefilter("ignore")  # of what torch thinks of such arguments
    rows = [
        _fuzz("fixup_zero_kv_rows", fixup_zero_kv_rows, _fixup, _check_fixup, seed, quick),
        _fuzz("merge_attn_states", merge_attn_states, _merge, _check_merge, seed + 1, quick),
    ]
    if DEVICE == "cpu":
        rows[0].not_run.append("the kernels themselves and compute-sanitizer: no GPU here; checks and reference ran")
    return rows


def _fuzz(name: str, op: Any, draw: Any, checked: Any, seed: int, quick: bool) -> Row:
    row = Row(f"{name} with hostile shapes, strides, dtypes, devices, aliases and contents", 0)
    refused, right, end = 0, 0, time.monotonic() + (10 if quick else SECONDS / 2)
    while time.monotonic() < end and len(row.wrong) < 10:
        rng = random.Random(f"{seed} {row.tried}")
        arguments = draw(rng)
        spoilt = [_spoil(rng, arguments) for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))]
        sentence, accepted = _tried(op, arguments, checked)
        row.tried += 1
        right, refused = right + accepted, refused + (not accepted)
        if sentence:
            row.wrong.append(f"seed {seed}, case {row.tried - 1}, {', '.join(spoilt) or 'nothing spoilt'}: {sentence}")
    row.figures |= {"refused": f"{refused:,}", "served": f"{right:,}", "seed": str(seed), "device": DEVICE}
    if not (refused and right):
        row.wrong.append("all were refused, or none: nothing was tried")
    return row


def _tried(op: Any, arguments: Arguments, checked: Any) -> tuple[str | None, bool]:
    """(what came out wrong, whether the op accepted the arguments)"""
    buffers = {name: _buffer(value) for name, value in arguments.items() if isinstance(value, torch.Tensor) and _real(value)}
    before = {name: bits(buffer).clone() for name, buffer in buffers.items()}
    changed = lambda: [name for name, buffer in buffers.items() if not torch.equal(bits(buffer), before[name])]  # noqa: E731
    try:
        verify = checked(arguments)
    except Exception:  # spoilt beyond what an oracle can take: the op must refuse
        verify = _should_refuse
    try:
        op(**arguments)
        if DEVICE == "cuda":
            torch.cuda.synchronize()
    except (TypeError, ValueError) as error:
        if not any(name in str(error) for name in arguments):
            return f"the error names no argument: {error}", False
        return (f"refused ({error}), but wrote {changed()}" if changed() else None), False
    except Exception as error:
        return f"{type(error).__name__}: {error}", False
    try:
        verify()
    except AssertionError as error:
        return f"accepted, and the result is wrong: {error}", True
    return None, True


def _should_refuse() -> None:
    raise AssertionError("no oracle can take these arguments")


def _real(tensor: torch.Tensor) -> bool:
    return (
        tensor.device.type != "meta"
        and not tensor.is_complex()
        and tensor.element_size() <= 4
        and tensor.layout == torch.strided
    )


def _buffer(tensor: torch.Tensor) -> torch.Tensor:
    base = tensor._base
    return (base if base is not None and base.layout == torch.strided else tensor).reshape(-1)


# Sound arguments


def _values(rng: random.Random, shape: tuple[int, int, int], dtype: torch.dtype) -> torch.Tensor:
    return values_view(rng.choice(VALUE_LAYOUTS), shape, dtype, DEVICE)


def _fixup(rng: random.Random) -> Arguments:
    lens = [rng.choice((0, 0, 1, 3)) for _ in range(rng.randrange(5))]
    tokens, heads, size = sum(lens) + rng.choice((0, 2)), rng.choice((1, 2, 3)), rng.choice((8, 24, 64))
    offsets = torch.tensor(
        [sum(lens[:i]) for i in range(len(lens) + 1)], device=DEVICE, dtype=rng.choice((torch.int32, torch.int64))
    )
    kv = torch.tensor([rng.choice((0, 5)) for _ in lens], device=DEVICE, dtype=torch.int32)
    out = _values(rng, (tokens, heads, size), rng.choice(DTYPES))
    return {"out": out, "lse": lse_view("plain", heads, tokens, DEVICE).t(), "kv_lens": kv, "cum_seq_lens": offsets}


def _check_fixup(given: Arguments) -> Callable[[], None]:
    out, lse, at, kv = given["out"], given["lse"], given["cum_seq_lens"].tolist(), given["kv_lens"].tolist()
    if at != sorted(at) or at[:1] < [0] or at[-1:] > [len(out)]:  # no offsets at all: any rows may be written, and nothing else
        guards = [Guard("out", out, lse), Guard("lse", lse, out)]
        return lambda: [guard.check() for guard in guards] and None
    expected_out, expected_lse = out.clone(), lse.clone()
    for b, length in enumerate(kv):
        if length <= 0:
            expected_out[at[b] : at[b + 1]], expected_lse[at[b] : at[b + 1]] = 0, -torch.inf

    def verify() -> None:
        assert torch.equal(bits(out), bits(expected_out)) and torch.equal(bits(lse), bits(expected_lse))

    return verify


def _merge(rng: random.Random) -> Arguments:
    tokens, heads, size, dtype = rng.choice((0, 1, 5, 9)), rng.choice((1, 2, 3)), rng.choice((8, 24, 64)), rng.choice(DTYPES)
    shape = tokens, heads, size
    lse = lambda: lse_view(rng.choice(("plain", "transposed", "padded")), heads, tokens, DEVICE)  # noqa: E731
    return {
        "output": _values(rng, shape, dtype), "prefix_output": _values(rng, shape, dtype), "prefix_lse": lse(),
        "suffix_output": _values(rng, shape, dtype), "suffix_lse": lse(), "output_lse": rng.choice((None, lse())),
        "prefill_tokens_with_context": rng.choice((None, None, 0, tokens)),
    }  # fmt: skip


def _check_merge(given: Arguments) -> Callable[[], None]:
    output, count = given["output"], given["prefill_tokens_with_context"]
    unread = torch.zeros(output.shape[0], dtype=torch.bool, device=output.device)
    if count is not None:
        unread[count:] = True
    names = "output", "prefix_output", "prefix_lse", "suffix_output", "suffix_lse", "output_lse"
    merged = MergeInputs(*(given[name] for name in names), count, None, None, None, False, unread)
    expected = merge_oracle(merged)
    return lambda: check_merge(merged, expected)


# What spoils them


def _spoil(rng: random.Random, arguments: Arguments) -> str:
    """Spoil one argument; what was done to it."""
    name = rng.choice([name for name, value in arguments.items() if isinstance(value, torch.Tensor)])
    ways = dict(WAYS)
    if name in ("kv_lens", "cum_seq_lens"):
        ways |= {"contents": _contents}
    what = rng.choice(list(ways))
    if what == "alias":
        other = rng.choice([other for other, value in arguments.items() if isinstance(value, torch.Tensor)])
        spoilt = _alias(rng, arguments[name], arguments[other])
        what = f"alias of {other}"
    else:
        try:
            spoilt = ways[what](rng, arguments[name])
        except (RuntimeError, IndexError, TypeError):  # torch itself will not have it
            return f"{name} as it was"
    arguments[name] = spoilt
    return f"{name}: {what}"


def _alias(rng: random.Random, tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The other's memory under this one's shape and dtype, from an element of it on."""
    try:
        flat = _buffer(other).view(tensor.dtype)
        room = flat.numel() - tensor.numel()
        return flat[(start := rng.choice((0, 0, 1, max(room, 0)))) : start + tensor.numel()].view(tensor.shape)
    except RuntimeError:
        return other


def _contents(rng: random.Random, tensor: torch.Tensor) -> torch.Tensor:
    return torch.tensor(
        [rng.choice((0, -1, 3, 10**6, 2**31 - 1, -(2**31))) for _ in range(tensor.numel())],
        dtype=tensor.dtype,
        device=tensor.device,
    )


_OTHER_DTYPES = (
    torch.float64, torch.float32, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.bool, torch.float8_e4m3fn,
)  # fmt: skip
WAYS: dict[str, Callable[[random.Random, torch.Tensor], Any]] = {
    "dtype": lambda rng, t: t.to(rng.choice(_OTHER_DTYPES)),
    "complex": lambda rng, t: t.to(torch.complex64),
    "shape": lambda rng, t: torch.zeros(
        [max(0, n + rng.choice((-1, 0, 1, 7))) for n in t.shape], dtype=t.dtype, device=t.device
    ),
    "flat": lambda rng, t: t.reshape(-1),
    "deeper": lambda rng, t: t[None],
    "transposed": lambda rng, t: t.transpose(0, -1),
    "expanded": lambda rng, t: t[:1].expand(t.shape),
    "strides that overlap": lambda rng, t: t.as_strided(t.shape, [1] * t.dim()),
    "every other": lambda rng, t: torch.cat([t, t])[::2],
    "empty": lambda rng, t: t[:0],
    "scalar": lambda rng, t: t.flatten()[0],
    "other device": lambda rng, t: t.to("meta") if rng.random() < 0.5 or DEVICE == "cpu" else t.cpu(),
    "sparse": lambda rng, t: t.to_sparse(),
    "requires grad": lambda rng, t: t.detach().clone().requires_grad_(),
    "no tensor": lambda rng, t: rng.choice((3, "x", t.tolist())),
    "alias": lambda rng, t: t,
}
