"""config.json of small models, one for each shape of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..protocol import Settings
from . import images

CONTEXT = 256
WINDOW = 24  # tokens that a row of a window layer sees, its own among them
VOCABULARY = 8192
STATES_LAYER = 1  # of the hybrid model: the other one is attention
STATES_CHUNK = 16  # tokens of a scan over recurrent states

#: FlashInfer compiles no prefill for narrower heads
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
    "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 64, "num_hidden_layers": 1, "vocab_size": VOCABULARY,
    "max_position_embeddings": CONTEXT, "torch_dtype": "float16", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "hidden_act": "silu", "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GEMMA2 = {
    **LLAMA, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "num_hidden_layers": 2, "num_key_value_heads": 1,
    "sliding_window": WINDOW, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 0.0, "final_logit_softcapping": None,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_act": "gelu_pytorch_tanh", "attention_bias": False,
}  # fmt: skip

GEMMA3 = {
    **LLAMA, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 2,
    "num_key_value_heads": 1, "sliding_window": WINDOW, "query_pre_attn_scalar": 16, "attention_bias": False,
    "hidden_activation": "gelu_pytorch_tanh", "layer_types": ["sliding_attention", "full_attention"],
    "attn_logit_softcapping": None, "final_logit_softcapping": None,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},  # as the larger ones have it: 0.5.13 asks for its factor
}  # fmt: skip
GPT_OSS = {
    **LLAMA, "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": 2,
    "num_key_value_heads": 1, "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"],
    "num_local_experts": 2, "num_experts_per_tok": 1, "attention_bias": True, "swiglu_limit": 7.0,
    "rope_scaling": None, "tie_word_embeddings": False,
}  # fmt: skip
#: heads as wide as DeepSeek's: there are kernels for no others
DEEPSEEK = {
    **LLAMA, "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_attention_heads": 2,
    "num_key_value_heads": 2, "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "first_k_dense_replace": 1, "moe_layer_freq": 1, "rope_scaling": None, "n_routed_experts": 2,
    "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "moe_intermediate_size": 64,
    "topk_method": "greedy", "scoring_func": "softmax", "norm_topk_prob": False, "routed_scaling_factor": 1.0,
    "num_nextn_predict_layers": 1, "attention_bias": False, "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK.pop("head_dim")

#: the pattern is of attention (*) and Mamba2 (M)
NEMOTRON_H = {
    **LLAMA, "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_hidden_layers": 2,
    "num_key_value_heads": 1, "hybrid_override_pattern": "*M", "ssm_state_size": 16, "mamba_num_heads": 4,
    "mamba_head_dim": 16, "n_groups": 1, "mamba_n_groups": 1, "chunk_size": STATES_CHUNK, "conv_kernel": 4,
    "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
}  # fmt: skip
#: name -> config. The name is an axis's value: it says what is special about the model's attention
MODELS: dict[str, dict[str, Any]] = {
    "mha": LLAMA,
    "gqa": {**LLAMA, "num_attention_heads": 4, "num_key_value_heads": 1},
    "windows": GEMMA3,
    "soft-cap": {**GEMMA2, "sliding_window": CONTEXT, "attn_logit_softcapping": 3.0},
    "windows-sinks": GPT_OSS,
    "mla": DEEPSEEK,
    "hybrid": NEMOTRON_H,
}


@dataclass(frozen=True)
class Attention:
    """What a layer's attention is, as the model's config says it: the reference computes it, and asks no layer of the engine.

    window: how many tokens a row sees, its own among them, or None for all.
    """

    scale: float
    window: int | None = None
    soft_cap: float = 0.0
    sinks: bool = False


def attention(config: dict[str, Any], layer_id: int) -> Attention:
    if is_latent(config):
        return Attention((config["qk_nope_head_dim"] + config["qk_rope_head_dim"]) ** -0.5)
    if config["model_type"] == "gemma2":
        window = config["sliding_window"] if layer_id % 2 == 0 else None
        return Attention(config["query_pre_attn_scalar"] ** -0.5, window, config["attn_logit_softcapping"])
    slides = config.get("layer_types", ["full_attention"] * 2)[layer_id] == "sliding_attention"
    scale = config.get("query_pre_attn_scalar", config["head_dim"]) ** -0.5
    return Attention(scale, config["sliding_window"] if slides else None, sinks=config["model_type"] == "gpt_oss")


def is_latent(config: dict[str, Any]) -> bool:
    """Whether the model's attention is on latents."""
    return "kv_lora_rank" in config


def config(settings: Settings) -> dict[str, Any]:
    own = {**MODELS[settings["model"]], "torch_dtype": settings["dtype"]}  # some layers take it from here, whatever the flag
    return own | ({"architectures": [images.ARCHITECTURE]} if settings.get("images") else {})


def draft(settings: Settings) -> dict[str, Any] | None:
    """The drafter's config, where the server has one."""
    if settings.get("speculative-algorithm") is None:
        return None
    if is_latent(own := config(settings)):
        return own  # the engine takes the layer behind the model's last one
    return {**LLAMA, "architectures": ["LlamaForCausalLMEagle"], "tie_word_embeddings": False, "torch_dtype": settings["dtype"]}
