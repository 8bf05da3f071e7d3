"""A Qwen3-Next model with random weights, an MTP head and no tokenizer: what GPU runs serve where state is recurrent.

Three layers of Gated DeltaNet and one of attention, then the same again. The first layer and that of the MTP head, which both
have the index 0, have experts, since vLLM takes neither without; all are chosen for each token, so that rounding never chooses
others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.serve.tiny_deepseek import Size, save

VOCABULARY = 8192
TINY = Size(layers=8, hidden=512, inner=1024, drawn=8)
#: With it, it is the GPU that takes the time: 2.4 billion weights. Drawn are the first layer, with its experts, and four more
LARGE = Size(layers=16, hidden=4096, inner=11008, drawn=5)
HEADS, KV_HEADS, HEAD = 8, 2, 128  # of attention
KEYS, VALUES, STATE, CONV = 2, 4, 128, 4  # heads of the recurrent layers, the size of each, and the length of its convolution
EXPERTS, EXPERT = 2, 256
_LINEAR, _FULL = "linear_attention", "full_attention"


def config(size: Size = TINY) -> dict[str, Any]:
    """For up to 32768 tokens."""
    return dict(
        architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=size.hidden, intermediate_size=size.inner, num_hidden_layers=size.layers, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
        max_position_embeddings=32768, rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.25,
        tie_word_embeddings=False, layer_types=[_FULL if at % 4 == 3 else _LINEAR for at in range(size.layers)],
        linear_num_key_heads=KEYS, linear_num_value_heads=VALUES, linear_key_head_dim=STATE, linear_value_head_dim=STATE,
        linear_conv_kernel_dim=CONV, decoder_sparse_step=1, mlp_only_layers=list(range(1, size.layers)), num_experts=EXPERTS,
        num_experts_per_tok=EXPERTS, norm_topk_prob=True, moe_intermediate_size=EXPERT,
        shared_expert_intermediate_size=EXPERT, num_nextn_predict_layers=1, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(size: Size = TINY, seed: int = 24) -> dict[str, Any]:
    """{name: tensor} of a checkpoint, in bfloat16. States keep what they hold for hundreds to thousands of tokens, so that an
    answer depends on all of a prompt's last turn."""
    import torch

    draw = torch.Generator().manual_seed(seed)
    hidden = size.hidden

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    zeros = lambda n: torch.zeros(n, dtype=torch.bfloat16)  # noqa: E731  # of a norm whose weight counts from 1

    def mlp(inner: int) -> dict[str, Any]:
        return {
            "gate_proj": matrix(inner, hidden), "up_proj": matrix(inner, hidden), "down_proj": matrix(hidden, inner),
        }  # fmt: skip

    def feed_forward(at: int) -> dict[str, Any]:
        if at:
            return {f"mlp.{name}": part for name, part in mlp(size.inner).items()}
        experts = {f"mlp.experts.{n}.{name}": part for n in range(EXPERTS) for name, part in mlp(EXPERT).items()}
        shared = {f"mlp.shared_expert.{name}": part for name, part in mlp(EXPERT).items()}
        return experts | shared | {"mlp.gate": matrix(EXPERTS, hidden), "mlp.shared_expert_gate": matrix(1, hidden)}

    def attention() -> dict[str, Any]:
        return {
            "self_attn.q_proj": matrix(2 * HEADS * HEAD, hidden, gain=3.0),  # and a gate for each
            "self_attn.k_proj": matrix(KV_HEADS * HEAD, hidden),
            "self_attn.v_proj": matrix(KV_HEADS * HEAD, hidden),
            "self_attn.o_proj": matrix(hidden, HEADS * HEAD, gain=2.0),
            "self_attn.q_norm": zeros(HEAD) + 2,  # looks at few tokens, so that an answer depends on each of their keys
            "self_attn.k_norm": zeros(HEAD),
        }

    def recurrent() -> dict[str, Any]:
        mixed = 2 * KEYS * STATE + VALUES * STATE
        return {
            "linear_attn.in_proj_qkvz": matrix(mixed + VALUES * STATE, hidden),
            "linear_attn.in_proj_ba": matrix(2 * VALUES, hidden),
            "linear_attn.conv1d": torch.randn(mixed, 1, CONV, generator=draw).bfloat16() * 0.5,
            "linear_attn.norm": torch.ones(STATE, dtype=torch.bfloat16),
            "linear_attn.out_proj": matrix(hidden, VALUES * STATE),
            # Bare parameters. A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
            "linear_attn.A_log": torch.linspace(-8, -4, VALUES).bfloat16(),
            "linear_attn.dt_bias": zeros(VALUES),
        }

    def layer(at: int, full: bool) -> dict[str, Any]:
        mixer = attention() if full else recurrent()
        return mixer | feed_forward(at) | {"input_layernorm": zeros(hidden), "post_attention_layernorm": zeros(hidden)}

    made = {"model.embed_tokens": torch.randn(VOCABULARY, hidden, generator=draw).bfloat16(), "model.norm": zeros(hidden)}
    layers: list[dict[str, Any]] = []
    for at in range(size.layers):
        # Kinds of layers come back every four; a file holds no tensor twice
        drawn = at < size.drawn
        layers.append(layer(at, at % 4 == 3) if drawn else {name: part.clone() for name, part in layers[at - 4].items()})
        made |= {f"model.layers.{at}.{name}": part for name, part in layers[at].items()}
    made |= {"lm_head": matrix(VOCABULARY, hidden, gain=3.0), "mtp.fc": matrix(hidden, 2 * hidden)}
    made |= {f"mtp.{name}": zeros(hidden) for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")}
    made |= {f"mtp.layers.0.{name}": part for name, part in layer(0, full=True).items()}
    return {name if name.endswith(("A_log", "dt_bias")) else f"{name}.weight": part for name, part in made.items()}


def make(folder: Path, size: Size = TINY) -> Path:
    """Write config.json and model.safetensors, about 60 MB (LARGE: 5 GB); returns `folder`."""
    return save(folder, config(size), weights(size))
