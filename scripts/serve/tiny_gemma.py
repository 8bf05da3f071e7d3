"""A Gemma 2 with random weights, a short sliding window and no tokenizer, and its answer in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from scripts.serve import tiny_deepseek
from scripts.serve.tiny_deepseek import TINY, Size

VOCABULARY = tiny_deepseek.VOCABULARY
HEADS, KV_HEADS, HEAD = 8, 4, 128
WINDOW = 512  # tokens that a window layer attends to, the newest included; layers 0, 2, … are window layers
#: Caps of attention scores and of the last logits
SCORES, LOGITS = 50.0, 30.0
EPSILON, THETA = 1e-6, 10000.0
#: What takes the GPU as long as a model in service would: 0.7 GB
MEDIUM = Size(layers=8, hidden=2304, inner=9216, drawn=8)


def config(size: Size = TINY) -> dict[str, Any]:
    return dict(
        architectures=["Gemma2ForCausalLM"], model_type="gemma2", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=size.hidden, intermediate_size=size.inner, num_hidden_layers=size.layers, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, query_pre_attn_scalar=HEAD, sliding_window=WINDOW,
        attn_logit_softcapping=SCORES, final_logit_softcapping=LOGITS, hidden_act="gelu_pytorch_tanh",
        hidden_activation="gelu_pytorch_tanh", rms_norm_eps=EPSILON, rope_theta=THETA, attention_bias=False,
        max_position_embeddings=16384, tie_word_embeddings=True, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(size: Size = TINY, seed: int = 20, repeats: bool = True) -> dict[str, Any]:
    """{name: bfloat16 tensor}. Every projection keeps the size of what it is given; queries are three times as large, so that
    a token attends to few others. A norm of Gemma's multiplies by 1 + its weight.

    The output layer is the embedding, so that such a model repeats its last token. `repeats` off: the embedding counts little
    beside what the layers add, and the most probable token is one that attention chose.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    hidden, inner = size.hidden, size.inner
    norm = lambda: torch.zeros(hidden, dtype=torch.bfloat16)  # noqa: E731
    embedding, last = (1.5, 0.0) if repeats else (0.15, 9.0)
    made = {"model.embed_tokens.weight": matrix(VOCABULARY, hidden, gain=embedding), "model.norm.weight": norm() + last}
    for at in range(size.layers):
        parts = {
            "self_attn.q_proj": matrix(HEADS * HEAD, hidden, gain=3.0),
            "self_attn.k_proj": matrix(KV_HEADS * HEAD, hidden),
            "self_attn.v_proj": matrix(KV_HEADS * HEAD, hidden),
            "self_attn.o_proj": matrix(hidden, HEADS * HEAD),
            "mlp.gate_proj": matrix(inner, hidden),
            "mlp.up_proj": matrix(inner, hidden),
            "mlp.down_proj": matrix(hidden, inner),
        }
        norms = "input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm"
        made |= {f"model.layers.{at}.{name}.weight": part for name, part in parts.items()}
        made |= {f"model.layers.{at}.{name}.weight": norm() for name in norms}
    return made


def make(folder: Path, size: Size = TINY, repeats: bool = True) -> Path:
    """Write config.json and model.safetensors, about 80 MB (MEDIUM: 0.7 GB); returns `folder`."""
    return tiny_deepseek.save(folder, config(size), weights(size, repeats=repeats))


def reference(
    folder: Path, prompts: list[list[int]], size: Size = TINY, device: str = "cuda", cap: float = SCORES, last: int = 1
) -> list[Any]:
    """Log-probabilities of the token after each prompt, float64 [VOCABULARY] each, on the host: the checkpoint's weights, and
    every operation in float64. `cap`: of attention scores; infinity is none. `last`: with more than one, of the tokens after
    each of so many last tokens of a prompt, [last, VOCABULARY]."""
    import torch
    from safetensors.torch import load_file

    tensors = {name: one.to(device, torch.float64) for name, one in load_file(folder / "model.safetensors").items()}
    every = (torch.log_softmax(_logits(tensors, prompt, size, device, cap, last), -1).cpu() for prompt in prompts)
    return [one if last > 1 else one[0] for one in every]


def _logits(tensors: dict[str, Any], prompt: list[int], size: Size, device: str, cap: float, last: int) -> Any:
    """[last, VOCABULARY]"""
    import torch
    import torch.nn.functional as F

    tokens = torch.tensor(prompt, device=device)
    count, eye = len(prompt), torch.arange(len(prompt), device=device)
    back = eye[:, None] - eye[None]  # how far a key lies behind the query
    x = tensors["model.embed_tokens.weight"][tokens] * torch.tensor(size.hidden**0.5).bfloat16().double()
    normed = lambda x, name: x * (x.square().mean(-1, keepdim=True) + EPSILON).rsqrt() * (1 + tensors[f"{name}.weight"])  # noqa: E731
    for at in range(size.layers):
        layer = f"model.layers.{at}"
        part = lambda x, name: x @ tensors[f"{layer}.{name}.weight"].t()  # noqa: B023, E731
        y = normed(x, f"{layer}.input_layernorm")
        q, k, v = (
            part(y, f"self_attn.{name}_proj").view(count, -1, HEAD).transpose(0, 1).repeat_interleave(repeat, 0)
            for name, repeat in (("q", 1), ("k", HEADS // KV_HEADS), ("v", HEADS // KV_HEADS))
        )
        scores = _rotated(q, eye) @ _rotated(k, eye).transpose(1, 2) * HEAD**-0.5
        scores = cap * torch.tanh(scores / cap) if cap < math.inf else scores
        seen = (back >= 0) & ((back < WINDOW) if at % 2 == 0 else (back >= 0))
        out = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
        x = x + normed(part(out.transpose(0, 1).reshape(count, -1), "self_attn.o_proj"), f"{layer}.post_attention_layernorm")
        y = normed(x, f"{layer}.pre_feedforward_layernorm")
        y = F.gelu(part(y, "mlp.gate_proj"), approximate="tanh") * part(y, "mlp.up_proj")
        x = x + normed(part(y, "mlp.down_proj"), f"{layer}.post_feedforward_layernorm")
    logits = normed(x[-last:], "model.norm") @ tensors["model.embed_tokens.weight"].t()
    return LOGITS * torch.tanh(logits / LOGITS)


def _rotated(x: Any, positions: Any) -> Any:
    """Rotary embedding of [heads, tokens, HEAD]: the two halves of a head are the two parts of each pair."""
    import torch

    turns = THETA ** (-torch.arange(0, HEAD, 2, device=x.device, dtype=torch.float64) / HEAD)
    angles = positions[:, None] * turns
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)
