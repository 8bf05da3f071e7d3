"""What a layer of Mamba2 returns, in float64: a sum over all tokens of the request, which keeps no state.

So a state that was taken from another position, from another request or from nobody shows in each row that comes behind.
"""

from __future__ import annotations

from typing import Any

import torch

#: How far a head looks back: a state decays to exp(-softplus(dt) * that) with each token
DECAYS = (0.03, 0.1, 0.4, 1.2)


def weights(heads: int, channels: int, width: int, draw: torch.Generator) -> dict[str, Any]:
    """A: what a state decays by, [heads]; D and dt_bias: [heads]; the convolution's weight, [channels, 1, width], and bias."""
    return {
        "A": -torch.tensor(DECAYS).repeat(heads)[:heads],
        "D": torch.full((heads,), 0.25),
        "dt_bias": torch.linspace(-0.5, 0.5, heads),
        "conv1d.weight": torch.randn(channels, 1, width, generator=draw) * 0.7,
        "conv1d.bias": torch.randn(channels, generator=draw) * 0.2,
    }


def convolved(before: Any, x: Any, weight: Any, bias: Any, activation: Any) -> Any:
    """before: [width - 1, dim], x: [tokens, dim], both as they are; weight: [dim, width]. [tokens, dim] in float64."""
    out = _products(before, x, weight).sum(-1)
    out = out if bias is None else out + bias.double()
    return out * out.sigmoid() if activation in ("silu", "swish", True) else out


def convolved_parts(before: Any, x: Any, weight: Any, bias: Any) -> Any:
    """As `convolved` with "silu": the norm of what each element of the result is made of. A kernel that multiplies in the dtype
    of the rows rounds each product, whether or not they cancel each other."""
    products = _products(before, x, weight)
    total = products.sum(-1) + bias.double()
    open_ = total.sigmoid()
    slope = open_ * (1 + total * (1 - open_))
    return ((total * open_) ** 2 + slope**2 * (products**2).sum(-1)).sqrt()


def _products(before: Any, x: Any, weight: Any) -> Any:
    return torch.cat([before, x]).double().unfold(0, weight.shape[1], 1).mul(weight.double())


def outputs(x: Any, b: Any, c: Any, dt: Any, *, a: Any, d: Any, dt_bias: Any, start: int) -> Any:
    """Of the tokens from `start` on, [rows, heads, d]. x: [tokens, heads, d]; b, c: [tokens, states], of all heads; dt:
    [tokens, heads]."""
    x, faded = x.double(), _faded(dt, a, dt_bias, start)
    return torch.einsum("ts,tsh,shd->thd", c[start:].double() @ b.double().t(), faded, x) + d.double()[:, None] * x[start:]


def output_parts(x: Any, b: Any, c: Any, dt: Any, *, a: Any, d: Any, dt_bias: Any, start: int) -> Any:
    """The norm of what `outputs` sums up, element by element of a state, [rows, heads]; x, b and c are norms, too. A kernel
    rounds such parts one by one, and where they cancel each other its errors do not."""
    faded, own = _faded(dt, a, dt_bias, start), d.double()[:, None] * x[start:]
    parts = torch.einsum("ts,tsh,shd->th", (c[start:] ** 2) @ (b**2).t(), faded**2, x**2)
    return (parts + (own**2).sum(-1)).sqrt()


def _faded(dt: Any, a: Any, dt_bias: Any, start: int) -> Any:
    """[rows, tokens, heads]: what is left of each token in each row's state."""
    step = torch.nn.functional.softplus(dt.double() + dt_bias.double())
    aged = (step * a.double()).cumsum(0)
    behind = torch.arange(len(dt)) <= torch.arange(start, len(dt))[:, None]
    return step * (aged[start:, None] - aged).clamp(max=0.0).exp() * behind[:, :, None]
