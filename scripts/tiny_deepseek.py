"""A DeepSeek-V2 model with random weights, small enough to be made in seconds: what GPU runs serve in place of a real one."""

from __future__ import annotations

import json
from pathlib import Path

VOCABULARY = 8192
_LAYERS, _HIDDEN, _MLP, _HEADS = 4, 1024, 2048, 16
_NOPE, _ROPE, _VDIM, _LORA = 128, 64, 128, 512


def make(folder: Path, context: int = 32768, seed: int = 20) -> Path:
    """Write config.json and model.safetensors (about 150 MB, bfloat16) for up to `context` tokens; returns `folder`.

    Four dense layers of 16 heads. Every projection keeps the size of what it is given; queries are three times as large, so
    that a token attends to few others and not to the mean of all, and logits twice.
    """
    import torch
    from safetensors.torch import save_file

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, deviation: float = 1.0) -> torch.Tensor:
        return (torch.randn(rows, columns, generator=draw) * deviation * columns**-0.5).bfloat16()

    weights = {
        "model.embed_tokens.weight": matrix(VOCABULARY, _HIDDEN, _HIDDEN**0.5),
        "lm_head.weight": matrix(VOCABULARY, _HIDDEN, 2),
        "model.norm.weight": torch.ones(_HIDDEN).bfloat16(),
    }
    for layer in range(_LAYERS):
        weights |= {
            f"model.layers.{layer}.{name}.weight": tensor
            for name, tensor in {
                "input_layernorm": torch.ones(_HIDDEN).bfloat16(),
                "post_attention_layernorm": torch.ones(_HIDDEN).bfloat16(),
                "self_attn.q_proj": matrix(_HEADS * (_NOPE + _ROPE), _HIDDEN, 3),
                "self_attn.kv_a_proj_with_mqa": matrix(_LORA + _ROPE, _HIDDEN),
                "self_attn.kv_a_layernorm": torch.ones(_LORA).bfloat16(),
                "self_attn.kv_b_proj": matrix(_HEADS * (_NOPE + _VDIM), _LORA),
                "self_attn.o_proj": matrix(_HIDDEN, _HEADS * _VDIM),
                "mlp.gate_proj": matrix(_MLP, _HIDDEN),
                "mlp.up_proj": matrix(_MLP, _HIDDEN),
                "mlp.down_proj": matrix(_HIDDEN, _MLP),
            }.items()
        }
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=_HIDDEN, intermediate_size=_MLP, moe_intermediate_size=256, num_hidden_layers=_LAYERS,
        num_attention_heads=_HEADS, num_key_value_heads=_HEADS, q_lora_rank=None, kv_lora_rank=_LORA, qk_nope_head_dim=_NOPE,
        qk_rope_head_dim=_ROPE, v_head_dim=_VDIM, head_dim=_ROPE, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
        max_position_embeddings=context, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False,
        # All layers are dense: no expert is made, but the engines read how many there would be
        first_k_dense_replace=_LAYERS, moe_layer_freq=1, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2,
        n_group=1, topk_group=1, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False, routed_scaling_factor=1.0,
        bos_token_id=0, eos_token_id=1,
    )  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    return folder
