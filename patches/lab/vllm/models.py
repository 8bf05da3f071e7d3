"""Tiny models to build a vLLM config of: a `config.json` in a temporary folder, and an entry in the engine's registry.

The engine reads the file by its own code, so the model's type, heads and attention are what it makes of them. The class that
the registry finds under the architecture's name holds no weights: the real ones import CUDA kernels, and nothing here runs a
model.
"""

from __future__ import annotations

import json
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

from . import kernels

_SHAPE = {"hidden_size": 256, "num_hidden_layers": 4, "intermediate_size": 256, "vocab_size": 128}
_TOKENS = {"max_position_embeddings": 4096, "torch_dtype": "bfloat16"} | dict(bos_token_id=0, eos_token_id=1, pad_token_id=2)
#: Dense, grouped-query attention: eight heads of 64, two for keys and values: decode context parallelism wants tp > 2
DENSE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": 8, "num_key_value_heads": 2,
    "head_dim": 64, **_SHAPE, **_TOKENS,
}  # fmt: skip
#: DeepSeek's multi-head latent attention, with its real head sizes
MLA: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "num_attention_heads": 16,
    "num_key_value_heads": 16, "q_lora_rank": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
    "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1, **_SHAPE, **_TOKENS,
}  # fmt: skip
#: Gated DeltaNet in three layers of four, and a head for MTP. The state of a layer fits a page of 16 tokens
QWEN3_NEXT: dict[str, Any] = {
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "full_attention_interval": 4, "linear_num_key_heads": 1,
    "linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4,
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "shared_expert_intermediate_size": 64,
    "num_nextn_predict_layers": 1, **_SHAPE, **_TOKENS,
}  # fmt: skip
#: Mamba2 in two layers of four, and a head for MTP. The state of a layer fits a page of 16 tokens
NEMOTRON_H: dict[str, Any] = {
    "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 64, "hybrid_override_pattern": "M*M*", "mtp_hybrid_override_pattern": "*E",
    "ssm_state_size": 16, "mamba_num_heads": 4, "n_groups": 1, "mamba_head_dim": 8, "chunk_size": 16, "conv_kernel": 4,
    "n_routed_experts": 4, "moe_intermediate_size": 64, "moe_shared_expert_intermediate_size": 64,
    "num_nextn_predict_layers": 1, **_SHAPE, **_TOKENS,
}  # fmt: skip
#: Whose own classes the registry gets, of a model and its head for MTP: the engine asks the first for the shape of a state
_OWN = (
    {"Qwen3NextForCausalLM": "qwen3_next.Qwen3NextForCausalLM", "Qwen3NextMTP": "qwen3_next_mtp.Qwen3NextMTP"},
    {"NemotronHForCausalLM": "nemotron_h.NemotronHForCausalLM", "NemotronHMTPModel": "nemotron_h_mtp.NemotronHMTP"},
)

_folders: list[tempfile.TemporaryDirectory] = []  # live as long as the process: the engine reads them again


def folder_of(model: dict[str, Any]) -> str:
    """A folder that holds this `config.json`, and the architecture known to the engine's registry."""
    registry: Any = import_module("vllm.model_executor.models.registry")
    folder = tempfile.TemporaryDirectory(prefix="attnfix-model-")
    _folders.append(folder)
    (Path(folder.name) / "config.json").write_text(json.dumps(model))
    for architecture in model["architectures"]:
        registry.ModelRegistry.register_model(architecture, _without_weights())
    for architecture, cls in own_classes(model).items():
        registry.ModelRegistry.register_model(architecture, cls)
    return folder.name


def own_classes(model: dict[str, Any]) -> dict[str, Any]:
    """architecture -> the engine's own class, of this model and its head: the model's is the first. None without states."""
    own = next((own for own in _OWN if set(own).intersection(model["architectures"])), {})
    places = {architecture: path.split(".") for architecture, path in own.items()}
    modules = {name: kernels.found(f"vllm.model_executor.models.{at}") for name, (at, _) in places.items()}
    return {name: getattr(module, places[name][1]) for name, module in modules.items() if module}  # heads came later


def _without_weights() -> type:
    import torch

    class Model(torch.nn.Module):
        """As much as the registry looks for in a model that generates text."""

        def __init__(self, *, vllm_config: Any, prefix: str = ""):
            super().__init__()

        def forward(self, input_ids: Any, positions: Any) -> None: ...

        def compute_logits(self, hidden_states: Any, sampling_metadata: Any = None) -> None: ...

        def get_input_embeddings(self, input_ids: Any) -> None: ...  # up to 0.11.1

        def embed_input_ids(self, input_ids: Any) -> None: ...

    return Model
