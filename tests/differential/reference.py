"""Attention in float64 over what the cache really holds, and how far from it a right result may be.

Tolerances. Rounding to a dtype whose unit roundoff is u changes each element, so each row, by at most u of itself. The path
to a result rounds several times: the weights, before they are multiplied with the values (Triton, FlashAttention), a partial
result before it is merged with another, the result itself. Each adds at most u times the norm of what it rounds, and that is
as large as the result: the values are drawn around zero, so that weights w leave a result of norm sqrt(sum w^2) times theirs,
and weights rounded one by one leave u times as much. Three roundings and a merge: `right` is 4 u.
A key that is lost, or is one too many, of n that a row sees, changes its result by 1/sqrt(e n) on average (weights of scores
that are drawn from a normal distribution): by 2.7 % for n = 512. `wrong` is 8 u: 3.1 % in bfloat16, where the worst row and
head of a step are far above the average, and 0.4 % in float16.
The cache and the query count as they were quantised: the reference reads what the cache holds, and rows are drawn so that FP8
holds them. So FP8 widens a result only where a kernel rounds more than the cache: see `of_narrow_weights`.
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

    scores = _scores(q, k, positions, scale, window, soft_cap, causal, mask)
    if sinks is not None:
        column = sinks.double()[None, :, None].expand(q.shape[0], -1, 1)
        weights = torch.cat([scores, column], -1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("qhk,khd->qhd", weights, _of_each_head(v, q).double())


def of_narrow_weights(
    q: Any, k: Any, v: Any, positions: Any, *, scale: float, window: int | None = None, soft_cap: float = 0.0,
    causal: bool = True, mask: Any = None, narrow: Any, cached: int,
) -> Any:  # fmt: skip
    """How far from `attention` a kernel may be that rounds weights to the dtype of a cache with fewer bits.

    Such a kernel multiplies the values of the first `cached` keys in their own dtype, `narrow`, and for that brings the weights
    to it. What it rounds is exp(score - m), where m is the largest score that it has met: so in units of the final maximum a
    weight w is off by at most u w or, where that is subnormal, by half the smallest number of the dtype. The values are drawn
    around zero, so that errors of different keys add up as their squares do. A sink takes from result and error alike.
    Returns [rows, heads], relative to the result: from float64 on the same quantised inputs, and no constant.
    """
    import torch

    scores = _scores(q, k, positions, scale, window, soft_cap, causal, mask)
    weights = (scores - scores.amax(-1, keepdim=True)).exp().nan_to_num(0.0)
    about = torch.finfo(narrow)
    errors = (weights * about.eps / 2).clamp_min(about.smallest_normal * about.eps / 2) * (weights > 0)
    errors[..., cached:] = 0
    v = _of_each_head(v, q).double()
    off = torch.einsum("qhk,khd->qh", errors**2, v**2).sqrt()
    return off / torch.einsum("qhk,khd->qhd", weights, v).norm(dim=-1).clamp_min(about.tiny)


def _of_each_head(shared: Any, q: Any) -> Any:
    return shared.repeat_interleave(q.shape[1] // shared.shape[1], 1)


def _scores(q: Any, k: Any, positions: Any, scale: float, window: Any, soft_cap: float, causal: bool, mask: Any) -> Any:
    """[rows, heads, tokens]; -inf where a row does not see the key."""
    import torch

    scores = torch.einsum("qhd,khd->qhk", q.double(), _of_each_head(k, q).double()) * scale
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
    return scores.masked_fill(~seen[:, None], -math.inf)


def compare(
    name: str, out: Any, reference: Any, labels: Sequence[str] | None = None, within: Tolerance | None = None,
    beside: Any = 0.0,
) -> Output:  # fmt: skip
    """The worst row of `out`, [rows, …], against `reference` of the same shape. labels: what each row is, for people.

    beside: [rows, heads], what else a right result may be off by; the worst row is that whose error is largest beside what it
    may be.
    """
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
    errors = torch.where(nothing, torch.where(rows.norm(dim=-1) == 0, 0.0, math.inf), errors).nan_to_num(math.inf, math.inf)
    right = torch.as_tensor(within.right + beside).expand(errors.shape)
    worst = int((errors / right).argmax())
    row, wide = worst // max(errors[0].numel(), 1), float(right.flatten()[worst])
    allowed = Tolerance(wide, wide * within.wrong / within.right)
    return Output(name, float(errors.flatten()[worst]), digest(out), allowed, labels[row] if labels else f"row {row}")


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
