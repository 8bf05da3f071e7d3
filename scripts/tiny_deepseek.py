"""A DeepSeek-V2 model with random weights and no tokenizer, made in seconds: what GPU runs serve in place of a real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

VOCABULARY = 8192
LAYERS, HIDDEN, INNER, HEADS = 4, 1024, 2048, 16
NOPE, ROPE, VDIM, LORA = 128, 64, 128, 512
GROUP = 128  # rows of an AWQ weight that share scale and zero point
#: Where AWQ packs eight 4-bit values into a word: value j lies at bit 4 * AWQ_ORDER[j]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
#: A checkpoint's quantization_config, as AutoAWQ writes it
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


def config() -> dict[str, Any]:
    """Four dense layers of 16 heads, for up to 32768 tokens."""
    return dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE,
        v_head_dim=VDIM, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, max_position_embeddings=32768,
        rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False,
        # No layer is one of experts; the engines ask for these figures all the same
        first_k_dense_replace=LAYERS, moe_layer_freq=1, moe_intermediate_size=256, n_routed_experts=8, n_shared_experts=1,
        num_experts_per_tok=2, n_group=1, topk_group=1, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False,
        routed_scaling_factor=1.0, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(seed: int = 20) -> dict[str, Any]:
    """{name: bfloat16 tensor} of a checkpoint. Every projection keeps the size of what it is given; queries are three times as
    large, so that a token attends to few others and not to the mean of all."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    ones = lambda n: torch.ones(n, dtype=torch.bfloat16)  # noqa: E731
    made = {"model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=draw).bfloat16()}
    for layer in range(LAYERS):
        parts = {
            "self_attn.q_proj": matrix(HEADS * (NOPE + ROPE), HIDDEN, gain=3.0),
            "self_attn.kv_a_proj_with_mqa": matrix(LORA + ROPE, HIDDEN),
            "self_attn.kv_a_layernorm": ones(LORA),
            "self_attn.kv_b_proj": matrix(HEADS * (NOPE + VDIM), LORA),
            "self_attn.o_proj": matrix(HIDDEN, HEADS * VDIM),
            "mlp.gate_proj": matrix(INNER, HIDDEN),
            "mlp.up_proj": matrix(INNER, HIDDEN),
            "mlp.down_proj": matrix(HIDDEN, INNER),
            "input_layernorm": ones(HIDDEN),
            "post_attention_layernorm": ones(HIDDEN),
        }
        made |= {f"model.layers.{layer}.{name}.weight": part for name, part in parts.items()}
    return made | {"model.norm.weight": ones(HIDDEN), "lm_head.weight": matrix(VOCABULARY, HIDDEN)}


def quantized(tensors: dict[str, Any]) -> dict[str, Any]:
    """The same checkpoint with every projection in AWQ's format: qweight, qzeros and scales instead of weight."""
    made: dict[str, Any] = {}
    for name, tensor in tensors.items():
        if "_proj" in name:
            made |= {name.replace("weight", part): packed for part, packed in awq(tensor).items()}
        else:
            made[name] = tensor
    return made


def awq(weight: Any, group: int = GROUP) -> dict[str, Any]:
    """A weight [out, in] rounded to 4 bits: qweight int32 [in, out / 8], qzeros int32 [groups, out / 8], scales float16
    [groups, out]; value (q - zero) * scale."""
    import torch

    grouped = weight.t().float().reshape(-1, group, weight.shape[0])
    low, high = grouped.amin(1).clamp(max=0), grouped.amax(1).clamp(min=0)
    scales = ((high - low) / 15).half()
    zeros = (-low / scales.float()).round().clamp(0, 15)
    values = (grouped / scales.float()[:, None] + zeros[:, None]).round().clamp(0, 15)
    shifts = 4 * torch.tensor(AWQ_ORDER)

    def packed(x: Any) -> Any:
        words = (x.long().unflatten(-1, (-1, 8)) << shifts).sum(-1)
        return torch.where(words < 2**31, words, words - 2**32).int()

    return {"qweight": packed(values.flatten(0, 1)), "qzeros": packed(zeros), "scales": scales}


def make(folder: Path, quantize: bool = False) -> Path:
    """Write config.json and model.safetensors, about 150 MB, of this model, or of its AWQ form; returns `folder`."""
    if quantize:
        return save(folder, config() | {"quantization_config": AWQ}, quantized(weights()))
    return save(folder, config(), weights())


def save(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
