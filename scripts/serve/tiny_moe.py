"""A Qwen3 MoE with random weights and no tokenizer: what GPU runs serve where rounding may choose other experts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.serve import tiny_deepseek
from scripts.serve.tiny_deepseek import VOCABULARY

LAYERS, HIDDEN, EXPERTS, CHOSEN, EXPERT = 4, 1024, 8, 2, 512
HEADS, KV_HEADS, HEAD = 16, 4, 64


def config() -> dict[str, Any]:
    """Experts in every layer, for up to 32768 tokens."""
    return dict(
        architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=HIDDEN, intermediate_size=2 * HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
        max_position_embeddings=32768, rope_theta=1000000.0, rope_scaling=None, tie_word_embeddings=False,
        decoder_sparse_step=1, mlp_only_layers=[], num_experts=EXPERTS, num_experts_per_tok=CHOSEN, norm_topk_prob=True,
        moe_intermediate_size=EXPERT, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(seed: int = 26) -> dict[str, Any]:
    """{name: bfloat16 tensor}. Every projection keeps the size of what it is given; queries are three times as large, so that
    a token attends to few others."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int) -> Any:
        return (torch.randn(rows, columns, generator=draw) * columns**-0.5).bfloat16()

    ones = lambda n: torch.ones(n, dtype=torch.bfloat16)  # noqa: E731
    made = {"model.embed_tokens": torch.randn(VOCABULARY, HIDDEN, generator=draw).bfloat16(), "model.norm": ones(HIDDEN)}
    for at in range(LAYERS):
        parts = {
            "self_attn.q_proj": matrix(HEADS * HEAD, HIDDEN),
            "self_attn.k_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": matrix(HIDDEN, HEADS * HEAD),
            "self_attn.q_norm": 3 * ones(HEAD),  # a gain of the projection would be taken out again
            "self_attn.k_norm": ones(HEAD),
            "mlp.gate": matrix(EXPERTS, HIDDEN),
            "input_layernorm": ones(HIDDEN),
            "post_attention_layernorm": ones(HIDDEN),
        }
        for expert in range(EXPERTS):
            for name, shape in (("gate", (EXPERT, HIDDEN)), ("up", (EXPERT, HIDDEN)), ("down", (HIDDEN, EXPERT))):
                parts[f"mlp.experts.{expert}.{name}_proj"] = matrix(*shape)
        made |= {f"model.layers.{at}.{name}": part for name, part in parts.items()}
    made["lm_head"] = matrix(VOCABULARY, HIDDEN)
    return {f"{name}.weight": part for name, part in made.items()}


def make(folder: Path) -> Path:
    """Write config.json and model.safetensors, about 160 MB; returns `folder`."""
    return tiny_deepseek.save(folder, config(), weights())
