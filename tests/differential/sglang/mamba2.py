"""Layers of Mamba2 beside those of attention: what is drawn, where, and what should come out.

A layer projects its input to a gate, to what is convolved and to steps. All are drawn here, behind the projection; what comes
out is compared before the norm, which takes the gate. The convolution, the scan and the step of a decode are the engine's own
Triton kernels, in the interpreter, and so is what keeps states for the radix cache.
"""

from __future__ import annotations

from typing import Any

import torch

from attnfix.patches.lab.sglang import mamba2 as lab

from .. import mamba2_reference as true


def install() -> None:
    """Before a server is constructed."""
    lab.import_kernels()
    lab.let_kernels_run_interpreted()


def is_recurrent(layer: Any) -> bool:
    return type(layer).__name__ == "MambaMixer2"


def width(layer: Any) -> int:
    """What the projection makes of a token: the gate, the channels that are convolved, a step of each head."""
    return int(layer.intermediate_size + layer.conv_dim + layer.num_heads)


def settle_weights(model: Any) -> None:
    """Let states last as long as `mamba2_reference.DECAYS` says, instead of at random."""
    draw = torch.Generator().manual_seed(2)
    for layer in filter(is_recurrent, model.modules()):
        weight = layer.conv1d.weight
        drawn = true.weights(layer.num_heads, weight.shape[0], weight.shape[-1], draw)
        for name, parameter in layer.named_parameters():
            if name in drawn:
                parameter.data.copy_(drawn[name])


def expected(layer: Any, rows: Any, start: int) -> tuple[Any, Any]:
    """Of a request's rows, as the projection gives them, [tokens, width]: what those from `start` on become,
    [rows, heads, d], and the norm of what that is summed from, relative to its own, [rows, heads]."""
    conv, heads, states = layer.conv1d, layer.num_heads, layer.ssm_state_size
    gate, channels, dt = rows.split([layer.intermediate_size, layer.conv_dim, heads], -1)
    nothing = torch.zeros(conv.weight.shape[-1] - 1, channels.shape[1], dtype=rows.dtype)
    convolution = nothing, channels, conv.weight[:, 0], conv.bias
    mixed = true.convolved(*convolution, layer.activation).to(rows.dtype)  # as it is kept there
    about = {"a": layer.A, "d": layer.D, "dt_bias": layer.dt_bias, "start": start}

    def split(of: Any) -> tuple[Any, Any, Any]:
        x, b, c = of.split([gate.shape[1], states, states], -1)
        return x.view(len(rows), heads, -1), b, c

    out = true.outputs(*split(mixed), dt, **about)
    parts = true.output_parts(*split(true.convolved_parts(*convolution)), dt, **about)
    return out, parts / out.norm(dim=-1).clamp_min(torch.finfo(out.dtype).tiny)
