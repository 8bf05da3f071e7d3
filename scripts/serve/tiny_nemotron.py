"""A NemotronH model with random weights, an MTP head and no tokenizer: what GPU runs serve where Mamba2 keeps a state.

Layers of Mamba2, of an MLP and of attention, twice. A state forgets within 40 to 1000 tokens, so that an answer depends on all
of a prompt's last turn, and attention looks at few tokens, so that it depends on each of their keys, too.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from scripts.serve.tiny_deepseek import save

VOCABULARY = 8192
PATTERN = "M-M*M-M*"
HIDDEN, INNER = 512, 1024
HEADS, KV_HEADS, HEAD = 8, 2, 128  # of attention
MAMBA_HEADS, MAMBA_HEAD, STATE, GROUPS, CONV = 16, 64, 128, 8, 4  # of the recurrent layers
CHUNK = 128  # tokens that a kernel of the recurrent layers computes at once


def config() -> dict[str, Any]:
    """For up to 32768 tokens."""
    return dict(
        architectures=["NemotronHForCausalLM"], model_type="nemotron_h", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=len(PATTERN), hybrid_override_pattern=PATTERN,
        num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD, mlp_hidden_act="relu2",
        attention_bias=False, mlp_bias=False, use_bias=False, layer_norm_epsilon=1e-5, rms_norm_eps=1e-5,
        max_position_embeddings=32768, tie_word_embeddings=False, mamba_num_heads=MAMBA_HEADS, mamba_head_dim=MAMBA_HEAD,
        ssm_state_size=STATE, n_groups=GROUPS, conv_kernel=CONV, chunk_size=CHUNK, expand=2, use_conv_bias=True,
        mamba_hidden_act="silu", mamba_proj_bias=False, num_nextn_predict_layers=1,
        mtp_hybrid_override_pattern="*", bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(seed: int = 29) -> dict[str, Any]:
    """{name: tensor} of a checkpoint, in bfloat16."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    ones = lambda n: torch.ones(n, dtype=torch.bfloat16)  # noqa: E731

    def mamba() -> dict[str, Any]:
        inner, mixed = MAMBA_HEADS * MAMBA_HEAD, MAMBA_HEADS * MAMBA_HEAD + 2 * GROUPS * STATE
        steps = torch.full((MAMBA_HEADS,), math.log(math.expm1(0.05)))
        return {
            "in_proj.weight": matrix(inner + mixed + MAMBA_HEADS, HIDDEN),
            "conv1d.weight": torch.randn(mixed, 1, CONV, generator=draw).bfloat16() * 0.5,
            "conv1d.bias": torch.zeros(mixed, dtype=torch.bfloat16),
            # A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
            "A_log": torch.linspace(math.log(0.02), math.log(0.5), MAMBA_HEADS).bfloat16(),
            "dt_bias": steps.bfloat16(),
            "D": torch.full((MAMBA_HEADS,), 0.1).bfloat16(),
            "norm.weight": ones(inner),
            "out_proj.weight": matrix(HIDDEN, inner),
        }

    def attention() -> dict[str, Any]:
        return {
            "q_proj.weight": matrix(HEADS * HEAD, HIDDEN, gain=3.0),
            "k_proj.weight": matrix(KV_HEADS * HEAD, HIDDEN),
            "v_proj.weight": matrix(KV_HEADS * HEAD, HIDDEN),
            "o_proj.weight": matrix(HIDDEN, HEADS * HEAD, gain=2.0),
        }

    def mlp() -> dict[str, Any]:
        return {"up_proj.weight": matrix(INNER, HIDDEN), "down_proj.weight": matrix(HIDDEN, INNER)}

    made = {"backbone.embeddings.weight": torch.randn(VOCABULARY, HIDDEN, generator=draw).bfloat16()}
    for at, kind in enumerate(PATTERN):
        made |= {
            f"backbone.layers.{at}.mixer.{name}": part for name, part in {"M": mamba, "*": attention, "-": mlp}[kind]().items()
        }
        made[f"backbone.layers.{at}.norm.weight"] = ones(HIDDEN)
    made |= {"backbone.norm_f.weight": ones(HIDDEN), "lm_head.weight": matrix(VOCABULARY, HIDDEN, gain=3.0)}
    head = {f"mixer.{name}": part for name, part in attention().items()} | {"eh_proj.weight": matrix(HIDDEN, 2 * HIDDEN)}
    head |= {f"{name}.weight": ones(HIDDEN) for name in ("norm", "enorm", "hnorm", "final_layernorm")}
    return made | {f"mtp.layers.0.{name}": part for name, part in head.items()}


def make(folder: Path) -> Path:
    """Write config.json and model.safetensors, about 60 MB; returns `folder`."""
    return save(folder, config(), weights())
