"""A NemotronH model with random weights, an MTP head and no tokenizer: what GPU runs serve where Mamba2 keeps a state.

Layers of Mamba2, of an MLP and of attention, twice. A state forgets within 40 to 1000 tokens, so that an answer depends on all
of a prompt's last turn, and attention looks at few tokens, so that it depends on each of their keys, too.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from scripts.serve.tiny_deepseek import Size, save

VOCABULARY = 8192
PATTERN = "M-M*M-M*"
TINY = Size(layers=len(PATTERN), hidden=512, inner=1024, drawn=len(PATTERN))
#: With it, it is the GPU that takes the time: 2 billion weights, of PATTERN four times
LARGE = Size(layers=4 * len(PATTERN), hidden=4096, inner=22016, drawn=len(PATTERN))
HEADS, KV_HEADS, HEAD = 8, 2, 128  # of attention
MAMBA_HEADS, MAMBA_HEAD, STATE, GROUPS, CONV = 16, 64, 128, 8, 4  # of the recurrent layers
CHUNK = 128  # tokens that a kernel of the recurrent layers computes at once


def _pattern(size: Size) -> str:
    return PATTERN * (size.layers // len(PATTERN))


def config(size: Size = TINY) -> dict[str, Any]:
    """For up to 32768 tokens."""
    return dict(
        architectures=["NemotronHForCausalLM"], model_type="nemotron_h", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=size.hidden, intermediate_size=size.inner, num_hidden_layers=size.layers,
        hybrid_override_pattern=_pattern(size),
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD, mlp_hidden_act="relu2",
        attention_bias=False, mlp_bias=False, use_bias=False, layer_norm_epsilon=1e-5, rms_norm_eps=1e-5,
        max_position_embeddings=32768, tie_word_embeddings=False, mamba_num_heads=MAMBA_HEADS, mamba_head_dim=MAMBA_HEAD,
        ssm_state_size=STATE, n_groups=GROUPS, conv_kernel=CONV, chunk_size=CHUNK, expand=2, use_conv_bias=True,
        mamba_hidden_act="silu", mamba_proj_bias=False, num_nextn_predict_layers=1,
        mtp_hybrid_override_pattern="*", bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(size: Size = TINY, seed: int = 29) -> dict[str, Any]:
    """{name: tensor} of a checkpoint, in bfloat16."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    hidden, inner_size = size.hidden, size.inner

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    ones = lambda n: torch.ones(n, dtype=torch.bfloat16)  # noqa: E731

    def mamba() -> dict[str, Any]:
        inner, mixed = MAMBA_HEADS * MAMBA_HEAD, MAMBA_HEADS * MAMBA_HEAD + 2 * GROUPS * STATE
        steps = torch.full((MAMBA_HEADS,), math.log(math.expm1(0.05)))
        return {
            "in_proj.weight": matrix(inner + mixed + MAMBA_HEADS, hidden),
            "conv1d.weight": torch.randn(mixed, 1, CONV, generator=draw).bfloat16() * 0.5,
            "conv1d.bias": torch.zeros(mixed, dtype=torch.bfloat16),
            # A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
            "A_log": torch.linspace(math.log(0.02), math.log(0.5), MAMBA_HEADS).bfloat16(),
            "dt_bias": steps.bfloat16(),
            "D": torch.full((MAMBA_HEADS,), 0.1).bfloat16(),
            "norm.weight": ones(inner),
            "out_proj.weight": matrix(hidden, inner),
        }

    def attention() -> dict[str, Any]:
        return {
            "q_proj.weight": matrix(HEADS * HEAD, hidden, gain=3.0),
            "k_proj.weight": matrix(KV_HEADS * HEAD, hidden),
            "v_proj.weight": matrix(KV_HEADS * HEAD, hidden),
            "o_proj.weight": matrix(hidden, HEADS * HEAD, gain=2.0),
        }

    def mlp() -> dict[str, Any]:
        return {"up_proj.weight": matrix(inner_size, hidden), "down_proj.weight": matrix(hidden, inner_size)}

    made = {"backbone.embeddings.weight": torch.randn(VOCABULARY, hidden, generator=draw).bfloat16()}
    kinds, layers = {"M": mamba, "*": attention, "-": mlp}, list[dict[str, Any]]()
    for at, kind in enumerate(_pattern(size)):
        drawn = at < size.drawn  # a file holds no tensor twice
        layers.append(kinds[kind]() if drawn else {name: part.clone() for name, part in layers[at - len(PATTERN)].items()})
        made |= {f"backbone.layers.{at}.mixer.{name}": part for name, part in layers[at].items()}
        made[f"backbone.layers.{at}.norm.weight"] = ones(hidden)
    made |= {"backbone.norm_f.weight": ones(hidden), "lm_head.weight": matrix(VOCABULARY, hidden, gain=3.0)}
    head = {f"mixer.{name}": part for name, part in attention().items()} | {"eh_proj.weight": matrix(hidden, 2 * hidden)}
    head |= {f"{name}.weight": ones(hidden) for name in ("norm", "enorm", "hnorm", "final_layernorm")}
    return made | {f"mtp.layers.0.{name}": part for name, part in head.items()}


def make(folder: Path, size: Size = TINY) -> Path:
    """Write config.json and model.safetensors, about 60 MB (LARGE: 4 GB); returns `folder`."""
    return save(folder, config(size), weights(size))
