"""A Llama with random weights and no tokenizer: a dense model, whose attention no fix is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.serve import tiny_deepseek
from scripts.serve.tiny_deepseek import TINY, Size

VOCABULARY = tiny_deepseek.VOCABULARY
HEADS, KV_HEADS, HEAD = 16, 4, 64


def config(size: Size = TINY, kv_heads: int = KV_HEADS) -> dict[str, Any]:
    return dict(
        architectures=["LlamaForCausalLM"], model_type="llama", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=size.hidden, intermediate_size=size.inner, num_hidden_layers=size.layers, num_attention_heads=HEADS,
        num_key_value_heads=kv_heads, head_dim=HEAD, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False, mlp_bias=False,
        max_position_embeddings=32768, rope_theta=10000.0, rope_scaling=None, tie_word_embeddings=False, bos_token_id=0,
        eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(size: Size = TINY, kv_heads: int = KV_HEADS, seed: int = 20) -> dict[str, Any]:
    """{name: bfloat16 tensor}, scaled as those of the other model."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    hidden, inner = size.hidden, size.inner
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    embeddings = torch.randn(VOCABULARY, hidden, generator=draw).bfloat16()
    layers = [
        {
            "self_attn.q_proj": matrix(HEADS * HEAD, hidden, gain=3.0),
            "self_attn.k_proj": matrix(kv_heads * HEAD, hidden),
            "self_attn.v_proj": matrix(kv_heads * HEAD, hidden),
            "self_attn.o_proj": matrix(hidden, HEADS * HEAD),
            "mlp.gate_proj": matrix(inner, hidden),
            "mlp.up_proj": matrix(inner, hidden),
            "mlp.down_proj": matrix(hidden, inner),
            "input_layernorm": ones.clone(),
            "post_attention_layernorm": ones.clone(),
        }
        for _ in range(min(size.drawn, size.layers))
    ]
    return tiny_deepseek.checkpoint(size, layers, embeddings, matrix(VOCABULARY, hidden))


#: The same model as a Granite, whose multipliers do what a Llama does. Llamas of sglang 0.5.23 need CUTLASS, even on Hopper
AS_GRANITE: dict[str, Any] = dict(
    architectures=["GraniteForCausalLM"], model_type="granite", embedding_multiplier=1.0, residual_multiplier=1.0,
    attention_multiplier=HEAD**-0.5, logits_scaling=1.0,
)  # fmt: skip


def make(folder: Path, size: Size = TINY, kv_heads: int = KV_HEADS, granite: bool = False) -> Path:
    """Write config.json and model.safetensors, about 100 MB (LARGE: 5 GB); returns `folder`."""
    return tiny_deepseek.save(folder, config(size, kv_heads) | (AS_GRANITE if granite else {}), weights(size, kv_heads))


#: By what a calibrated FP8 cache divides keys and values: about the largest of them over the largest that FP8 holds
SCALES = {"k": 0.011, "v": 0.012}


def make_calibrated(folder: Path, size: Size = TINY, query: float | None = None) -> Path:
    """The same with scales of an FP8 KV cache, and of queries where one is given; its projections are not quantised. Returns
    `folder`."""
    import torch

    names = [f"model.layers.{at}.self_attn.{part}_proj.{part}_scale" for at in range(size.layers) for part in SCALES]
    tensors = weights(size)
    left = [name.removesuffix(".weight") for name in tensors if "_proj" in name]
    quantization = {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": left, "kv_cache_scheme": "static"}
    scales = {name: torch.tensor(SCALES[name.rpartition(".")[2][0]]) for name in names}
    if query is not None:
        scales |= {f"model.layers.{at}.self_attn.q_scale": torch.tensor(query) for at in range(size.layers)}
    return tiny_deepseek.save(folder, config(size) | {"quantization_config": quantization}, tensors | scales)
