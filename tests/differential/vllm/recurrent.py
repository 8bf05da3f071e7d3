"""Layers with a recurrent state beside those of attention: the engine's own layer of Mamba2, and what it should return.

A layer's inputs follow from the token and its position, as those of attention do. So what it returns for a token follows from
all tokens before it: a state that was taken from another position, from another request, or from nobody shows in each row that
comes behind (mamba2_reference).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from attnfix.patches.lab.vllm.models import NEMOTRON_H

from .. import mamba2_reference

#: Values of the axis "recurrent"; layers of a model, beside two of attention
LAYERS = {"none": 0, "mamba2": 2}
ARCHITECTURE, MODULE = "NemotronHForCausalLM", "nemotron_h"
MIXER = "vllm.model_executor.layers.mamba.mamba_mixer2"


def config(layers: int, wider: int, **text: Any) -> dict[str, Any]:
    """`config.json` of a model with two layers of attention and so many of Mamba2, and what else it says. wider: how many times
    a state is as wide as NEMOTRON_H's, so that it stays larger than a block of keys."""
    states = {"ssm_state_size": wider * NEMOTRON_H["ssm_state_size"]}
    return {**NEMOTRON_H, **states, **text, "hybrid_override_pattern": "**" + layers * "M", "num_hidden_layers": 2 + layers}


def traits() -> dict[str, Any]:
    """What the engine asks of the class of such a model: its answers are those of the engine's own one."""
    own: Any = getattr(import_module(f"vllm.model_executor.models.{MODULE}"), ARCHITECTURE)
    names = [name for name in dir(own) if name.startswith("get_mamba_")]
    flags = [name for name in ("has_inner_state", "is_hybrid", "supports_mamba_prefix_caching", "supports_replayssm")
             if hasattr(own, name)]  # fmt: skip
    return {name: staticmethod(getattr(own, name)) for name in names} | {name: getattr(own, name) for name in flags}


def layer(index: int, worker: Any) -> Any:
    """Layer `index` of the model, by the engine's constructor."""
    text, cls = worker.config.model_config.hf_text_config, import_module(MIXER).MambaMixer2
    return worker._in_dtype(
        cls, hidden_size=text.hidden_size, ssm_state_size=text.ssm_state_size, conv_kernel_size=text.conv_kernel,
        intermediate_size=text.mamba_num_heads * text.mamba_head_dim, use_conv_bias=True, use_bias=False,
        n_groups=text.n_groups,
        num_heads=text.mamba_num_heads, head_dim=text.mamba_head_dim, activation="silu",
        model_config=worker.config.model_config, cache_config=worker.config.cache_config,
        prefix=f"model.layers.{index}.mixer",
    )  # fmt: skip


def is_recurrent(layer: Any) -> bool:
    return hasattr(layer, "conv_ssm_forward")


def name_of(layer: Any) -> str:
    return str(layer.prefix if is_recurrent(layer) else layer.layer_name)


def load(name: str, parameter: Any, model: Any, draw: Any) -> bool:
    """Whether that was a weight of a recurrent layer; if so it is loaded, by its own loader and for all ranks."""
    _, index, kind = name.split(".", 2)
    one = model.layers[int(index)]
    if not is_recurrent(one):
        return False
    heads, states = one.num_heads, one.ssm_state_size
    groups = 1 if one.n_groups % one.tp_size or one.n_groups == one.tp_size else one.n_groups
    channels = heads * one.head_dim + 2 * groups * states
    values = mamba2_reference.weights(heads, channels, one.conv_kernel_size, draw)
    values["A"] = (-values["A"]).log()  # as a checkpoint has it
    if kind in values:
        parameter.weight_loader(parameter, values[kind].to(parameter.dtype))
    return True


def inputs(layer: Any, worker: Any, contents: Any, tokens: Any, positions: Any, salts: Any = 0) -> Any:
    """This rank's [tokens, gate + channels + heads], as the layer's projection would give them; there is no gate."""
    heads, mine = layer.num_heads, layer.num_heads // layer.tp_size
    rows = lambda kind, *shape: contents.rows(layer.prefix, kind, tokens, positions, *shape, salts)  # noqa: E731
    own = slice(worker.rank * mine, (worker.rank + 1) * mine)
    x = rows("x", heads, layer.head_dim)[:, own].flatten(1)
    states = [rows(kind, 1, layer.ssm_state_size).flatten(1) for kind in "BC"]
    return torch.cat([torch.zeros_like(x), x, *states, rows("dt", heads, 1)[:, own, 0]], 1)


def run(layer: Any, rows: Any) -> Any:
    """[tokens, heads of this rank, d]: what the layer's own path between its projections makes of them."""
    out = torch.empty(len(rows), layer.num_heads // layer.tp_size * layer.head_dim, dtype=rows.dtype)
    layer.conv_ssm_forward(projected_states=rows, output=out)
    return out


def reference(layer: Any, worker: Any, contents: Any, start: int, words: list[int], salts: Any) -> Any:
    """What the layer returns for the words from `start` on, of a request that begins with the first one. [rows, heads, d]."""
    dtype = worker.config.model_config.dtype
    rows = inputs(layer, worker, contents, torch.tensor(words), torch.arange(len(words)), salts).to(dtype)
    gate, (count, d) = layer.tped_intermediate_size, (layer.num_heads // layer.tp_size, layer.head_dim)
    channels, dt = rows[:, gate:].split([layer.tped_conv_size, layer.tped_dt_size], -1)
    nothing = torch.zeros(layer.conv_kernel_size - 1, channels.shape[1], dtype=dtype)
    mixed = mamba2_reference.convolved(nothing, channels, layer.conv_weights, layer.conv1d.bias, layer.activation)
    x, b, c = mixed.to(dtype).split([gate, layer.ssm_state_size, layer.ssm_state_size], -1)  # rounded, as it is there
    about = {"a": layer.A, "d": layer.D, "dt_bias": layer.dt_bias}
    return mamba2_reference.outputs(x.view(-1, count, d), b, c, dt, **about, start=start)
