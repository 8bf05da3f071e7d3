"""Attention in float64 over what the cache really holds, and how far from it a right result may be.

Tolerances. Rounding to a dtype whose unit roundoff is u changes each element, so each row, by at most u of itself. The path
to a result rounds several times: the weights, before they are multiplied with the values (Triton, FlashAttention), a partial
result before it is merged with another, the result itself. Each adds at most u times the norm of what it rounds, and that is
as large as the result: the values are drawn around zero, so that weights w leave a result of norm sqrt(sum w^2) times theirs,
and weights rounded one by one leave u times as much. Three roundings and a merge: `right` is 4 u.
A key that is lost, or is one too many, of n that a row sees, changes its result by 1/sqrt(e n) on average (weights of scores
that are drawn from a normal distribution): by 2.7 % for n = 512. `wrong` is 8 u: 3.1 % in bfloat16, where the worst row and
head of a step are far above the average, and 0.4 % in float16.
The cache and the query count as they were quantised: the reference reads what the cache holds. So FP8 widens nothing but a
result that is itself written in FP8.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from .protocol import Output, Tolerance


def tolerance(dtype: Any) -> Tolerance:
    """Of results written in this dtype."""
    import torch

    u = torch.finfo(dtype).eps / 2
    return Tolerance(4 * u, 8 * u)


def attention(
    q: Any, k: Any, v: Any, positions: Any, *, scale: float, window: int | None = None, soft_cap: float = 0.0,
    sinks: Any = None, causal: bool = True, mask: Any = None,
) -> Any:  # fmt: skip
    """Of one request. q: [rows, heads, d], at `positions` of it; k, v: [tokens, KV heads, d], all that is there.

    window: how many keys a row sees, its own one among them. mask: [rows, tokens], True where a row sees the key, beside the
    other conditions. sinks: a score of each head that takes its share of the weights and has no value.
    Returns [rows, heads, dv] in float64; a row that sees no key is 0.
    """
    import torch

    q, k, v = q.double(), k.double(), v.double()
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = torch.einsum("qhd,khd->qhk", q, k) * scale
    if soft_cap:
        scores = (scores / soft_cap).tanh() * soft_cap
    keys, rows = torch.arange(k.shape[0]), torch.as_tensor(positions)[:, None]
    seen = torch.ones(q.shape[0], k.shape[0], dtype=torch.bool)
    if causal:
        seen &= keys <= rows
    if window is not None:
        seen &= keys > rows - window
    if mask is not None:
        seen &= mask
    scores = scores.masked_fill(~seen[:, None], -math.inf)
    if sinks is not None:
        column = sinks.double()[None, :, None].expand(q.shape[0], -1, 1)
        weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("qhk,khd->qhd", weights, v)


def compare(
    name: str, out: Any, reference: Any, labels: Sequence[str] | None = None, within: Tolerance | None = None
) -> Output:
    """The worst row of `out`, [rows, …], against `reference` of the same shape. labels: what each row is, for people."""
    import torch

    if tuple(out.shape) != tuple(reference.shape):
        raise ValueError(f"the result has shape {tuple(out.shape)}, the reference {tuple(reference.shape)}")
    within = within or tolerance(out.dtype)
    if not len(out):
        return Output(name, 0.0, digest(out), within)
    # Head by head: one that is wrong does not hide among those that are right
    rows, true = (x.double().reshape(*x.shape[:-1], -1) for x in (out, reference))
    errors = (rows - true).norm(dim=-1) / true.norm(dim=-1).clamp_min(torch.finfo(out.dtype).tiny)
    nothing = true.norm(dim=-1) == 0  # a row that sees no key: what it holds is wrong as a whole, or right
    errors = torch.where(nothing, torch.where(rows.norm(dim=-1) == 0, 0.0, math.inf), errors)
    errors = errors.nan_to_num(math.inf, math.inf).flatten(1).amax(1) if errors.dim() > 1 else errors.nan_to_num(math.inf)
    worst = int(errors.argmax())
    return Output(name, float(errors[worst]), digest(out), within, labels[worst] if labels else f"row {worst}")


def digest(*things: Any) -> str:
    """Of tensors by their bits, and of what holds them: dataclasses field by field, sequences, mappings, plain values.

    Objects that are none of these count by the name of their class: an address is no property of a result.
    """
    state = hashlib.sha256()
    for thing in things:
        for piece in _pieces(thing):
            state.update(piece)
    return state.hexdigest()[:16]


def _pieces(thing: Any) -> Iterable[bytes]:
    import torch

    if isinstance(thing, torch.Tensor):
        thing = thing.detach().as_subclass(torch.Tensor).cpu()
        yield f"{thing.dtype}{tuple(thing.shape)}".encode()
        if thing.dtype.is_floating_point and thing.element_size() < 4:  # numpy has not all of these
            thing = thing.view(torch.uint8 if thing.element_size() == 1 else torch.int16)
        yield thing.numpy().tobytes()
    elif is_dataclass(thing) and not isinstance(thing, type):
        yield type(thing).__name__.encode()
        for field in fields(thing):
            yield field.name.encode()
            yield from _pieces(getattr(thing, field.name, None))
    elif isinstance(thing, dict):
        for name in sorted(thing, key=repr):
            yield repr(name).encode()
            yield from _pieces(thing[name])
    elif isinstance(thing, (list, tuple)):
        yield str(len(thing)).encode()
        for one in thing:
            yield from _pieces(one)
    elif isinstance(thing, (str, int, float, bool, bytes, type(None))):
        yield repr(thing).encode()
    else:
        yield type(thing).__name__.encode()
