"""A Llama with random weights and no tokenizer: a dense model, whose attention no fix is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tiny_deepseek

VOCABULARY = tiny_deepseek.VOCABULARY
LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, HEAD = 4, 1024, 2048, 16, 4, 64


def config() -> dict[str, Any]:
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, mlp_bias=False,
        max_position_embeddings=32768, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(seed: int = 20) -> dict[str, Any]:
    """{name: bfloat16 tensor}, scaled as those of the other model."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    made = {"model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=draw).bfloat16()}
    for layer in range(LAYERS):
        parts = {
            "self_attn.q_proj": matrix(HEADS * HEAD, HIDDEN, gain=3.0),
            "self_attn.k_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": matrix(HIDDEN, HEADS * HEAD),
            "mlp.gate_proj": matrix(INNER, HIDDEN),
            "mlp.up_proj": matrix(INNER, HIDDEN),
            "mlp.down_proj": matrix(HIDDEN, INNER),
            "input_layernorm": ones.clone(),
            "post_attention_layernorm": ones.clone(),
        }
        made |= {f"model.layers.{layer}.{name}.weight": part for name, part in parts.items()}
    return made | {"model.norm.weight": ones.clone(), "lm_head.weight": matrix(VOCABULARY, HIDDEN)}


def make(folder: Path) -> Path:
    """Write config.json and model.safetensors, about 100 MB; returns `folder`."""
    return tiny_deepseek.save(folder, config(), weights())
