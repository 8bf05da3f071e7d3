"""A Qwen3-Next model with random weights, an MTP head and no tokenizer: what GPU runs serve where state is recurrent.

Three layers of Gated DeltaNet and one of attention, then the same again. The first layer and that of the MTP head, which both
have the index 0, have experts, since vLLM takes neither without; all are chosen for each token, so that rounding never chooses
others.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scripts.serve.tiny_deepseek import save

VOCABULARY = 8192
LAYERS, HIDDEN, INNER = 8, 512, 1024
HEADS, KV_HEADS, HEAD = 8, 2, 128  # of attention
KEYS, VALUES, STATE, CONV = 2, 4, 128, 4  # heads of the recurrent layers, the size of each, and the length of its convolution
EXPERTS, EXPERT = 2, 256
_LINEAR, _FULL = "linear_attention", "full_attention"


def config() -> dict[str, Any]:
    """For up to 32768 tokens."""
    return dict(
        architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", torch_dtype="bfloat16", vocab_size=VOCABULARY,
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS, head_dim=HEAD, hidden_act="silu", rms_norm_eps=1e-6, attention_bias=False,
        max_position_embeddings=32768, rope_theta=10000.0, rope_scaling=None, partial_rotary_factor=0.25,
        tie_word_embeddings=False, layer_types=[_FULL if at % 4 == 3 else _LINEAR for at in range(LAYERS)],
        linear_num_key_heads=KEYS, linear_num_value_heads=VALUES, linear_key_head_dim=STATE, linear_value_head_dim=STATE,
        linear_conv_kernel_dim=CONV, decoder_sparse_step=1, mlp_only_layers=list(range(1, LAYERS)), num_experts=EXPERTS,
        num_experts_per_tok=EXPERTS, norm_topk_prob=True, moe_intermediate_size=EXPERT,
        shared_expert_intermediate_size=EXPERT, num_nextn_predict_layers=1, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip


def weights(seed: int = 24) -> dict[str, Any]:
    """{name: tensor} of a checkpoint, in bfloat16. States keep what they hold for hundreds to thousands of tokens, so that an
    answer depends on all of a prompt's last turn."""
    import torch

    draw = torch.Generator().manual_seed(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (torch.randn(rows, columns, generator=draw) * gain * columns**-0.5).bfloat16()

    zeros = lambda n: torch.zeros(n, dtype=torch.bfloat16)  # noqa: E731  # of a norm whose weight counts from 1

    def mlp(inner: int) -> dict[str, Any]:
        return {
            "gate_proj": matrix(inner, HIDDEN), "up_proj": matrix(inner, HIDDEN), "down_proj": matrix(HIDDEN, inner),
        }  # fmt: skip

    def feed_forward(at: int) -> dict[str, Any]:
        if at:
            return {f"mlp.{name}": part for name, part in mlp(INNER).items()}
        experts = {f"mlp.experts.{n}.{name}": part for n in range(EXPERTS) for name, part in mlp(EXPERT).items()}
        shared = {f"mlp.shared_expert.{name}": part for name, part in mlp(EXPERT).items()}
        return experts | shared | {"mlp.gate": matrix(EXPERTS, HIDDEN), "mlp.shared_expert_gate": matrix(1, HIDDEN)}

    def attention() -> dict[str, Any]:
        return {
            "self_attn.q_proj": matrix(2 * HEADS * HEAD, HIDDEN, gain=3.0),  # and a gate for each
            "self_attn.k_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.v_proj": matrix(KV_HEADS * HEAD, HIDDEN),
            "self_attn.o_proj": matrix(HIDDEN, HEADS * HEAD, gain=2.0),
            "self_attn.q_norm": zeros(HEAD) + 2,  # looks at few tokens, so that an answer depends on each of their keys
            "self_attn.k_norm": zeros(HEAD),
        }

    def recurrent() -> dict[str, Any]:
        mixed = 2 * KEYS * STATE + VALUES * STATE
        return {
            "linear_attn.in_proj_qkvz": matrix(mixed + VALUES * STATE, HIDDEN),
            "linear_attn.in_proj_ba": matrix(2 * VALUES, HIDDEN),
            "linear_attn.conv1d": torch.randn(mixed, 1, CONV, generator=draw).bfloat16() * 0.5,
            "linear_attn.norm": torch.ones(STATE, dtype=torch.bfloat16),
            "linear_attn.out_proj": matrix(HIDDEN, VALUES * STATE),
            # Bare parameters. A token's decay is exp(-exp(A_log) * softplus(what it projects to + dt_bias))
            "linear_attn.A_log": torch.linspace(-8, -4, VALUES).bfloat16(),
            "linear_attn.dt_bias": zeros(VALUES),
        }

    def layer(at: int, full: bool) -> dict[str, Any]:
        mixer = attention() if full else recurrent()
        return mixer | feed_forward(at) | {"input_layernorm": zeros(HIDDEN), "post_attention_layernorm": zeros(HIDDEN)}

    made = {"model.embed_tokens": torch.randn(VOCABULARY, HIDDEN, generator=draw).bfloat16(), "model.norm": zeros(HIDDEN)}
    for at in range(LAYERS):
        made |= {f"model.layers.{at}.{name}": part for name, part in layer(at, full=at % 4 == 3).items()}
    made |= {"lm_head": matrix(VOCABULARY, HIDDEN, gain=3.0), "mtp.fc": matrix(HIDDEN, 2 * HIDDEN)}
    made |= {f"mtp.{name}": zeros(HIDDEN) for name in ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")}
    made |= {f"mtp.layers.0.{name}": part for name, part in layer(0, full=True).items()}
    return {name if name.endswith(("A_log", "dt_bias")) else f"{name}.weight": part for name, part in made.items()}


def make(folder: Path) -> Path:
    """Write config.json and model.safetensors, about 60 MB; returns `folder`."""
    return save(folder, config(), weights())
