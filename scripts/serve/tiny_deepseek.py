"""A DeepSeek-V2 model with random weights and no tokenizer, made in seconds: what GPU runs serve in place of a real one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VOCABULARY = 8192
HEADS = 16
NOPE, ROPE, VDIM, LORA = 128, 64, 128, 512
GROUP = 128  # rows of an AWQ weight that share scale and zero point
#: Where AWQ packs eight 4-bit values into a word: value j lies at bit 4 * AWQ_ORDER[j]
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
#: A checkpoint's quantization_config, as AutoAWQ writes it
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}


@dataclass(frozen=True)
class Size:
    """layers, hidden, inner: as in config.json. drawn: how many layers have weights of their own; the others repeat these."""

    layers: int = 4
    hidden: int = 1024
    inner: int = 2048
    drawn: int = 4


#: With the first the engine's Python is what takes the time; with the second it is the GPU, as with a model in service
TINY, LARGE = Size(), Size(layers=16, hidden=4096, inner=11008)


def config(size: Size = TINY) -> dict[str, Any]:
    """Dense layers of 16 heads, for up to 32768 tokens."""
    return dict(
        architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=size.hidden, intermediate_size=size.inner, num_hidden_layers=size.layers, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, q_lora_rank=None, kv_lora_rank=LORA, qk_nope_head_dim=NOPE, qk_rope_head_dim=ROPE,
        v_head_dim=VDIM, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, max_position_embeddings=32768,
        rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False,
        # No layer is one of experts; the engines ask for these figures all the same
        first_k_dense_replace=size.layers, moe_layer_freq=1, moe_intermediate_size=256, n_routed_experts=8, n_shared_experts=1,
        num_experts_per_tok=2, n_group=1, topk_group=1, topk_method="greedy", scoring_func="softmax", norm_topk_prob=False,
        routed_scaling_factor=1.0, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(size: Size = TINY, seed: int = 20) -> dict[str, Any]:
    """{name: bfloat16 tensor} of a checkpoint. Every projection keeps the size of what it is given; queries are three times as
    large, so that a token attends to few others and not to the mean of all."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    ones = lambda n: torch.ones(n, dtype=torch.bfloat16)  # noqa: E731
    hidden, inner = size.hidden, size.inner
    embeddings = torch.randn(VOCABULARY, hidden, generator=draw).bfloat16()
    layers = [
        {
            "self_attn.q_proj": matrix(HEADS * (NOPE + ROPE), hidden, gain=3.0),
            "self_attn.kv_a_proj_with_mqa": matrix(LORA + ROPE, hidden),
            "self_attn.kv_a_layernorm": ones(LORA),
            "self_attn.kv_b_proj": matrix(HEADS * (NOPE + VDIM), LORA),
            "self_attn.o_proj": matrix(hidden, HEADS * VDIM),
            "mlp.gate_proj": matrix(inner, hidden),
            "mlp.up_proj": matrix(inner, hidden),
            "mlp.down_proj": matrix(hidden, inner),
            "input_layernorm": ones(hidden),
            "post_attention_layernorm": ones(hidden),
        }
        for _ in range(min(size.drawn, size.layers))
    ]
    return checkpoint(size, layers, embeddings, matrix(VOCABULARY, hidden))


def checkpoint(size: Size, layers: list[dict[str, Any]], embeddings: Any, head: Any) -> dict[str, Any]:
    """{name: tensor} of all layers: those that are given, again and again."""
    made = {"model.embed_tokens.weight": embeddings, "model.norm.weight": layers[0]["input_layernorm"].clone()}
    for at in range(size.layers):
        parts = layers[at % len(layers)]
        # Copies, since a file holds no tensor twice
        made |= {f"model.layers.{at}.{name}.weight": part if at < len(layers) else part.clone() for name, part in parts.items()}
    return made | {"lm_head.weight": head}


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


def make(folder: Path, quantize: bool = False, size: Size = TINY) -> Path:
    """Write config.json and model.safetensors, about 150 MB (LARGE: 5 GB), or this model's AWQ form; returns `folder`."""
    if quantize:
        return save(folder, config(size) | {"quantization_config": AWQ}, quantized(weights(size)))
    return save(folder, config(size), weights(size))


def save(folder: Path, config: dict[str, Any], tensors: dict[str, Any]) -> Path:
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
