"""LoRA adapters of a server: small ones, on disk, which the engine loads and its own Triton kernels compute.

Queries, keys and values of layers are drawn, by adapter, behind the projections. What an adapter adds to these is compared
before that, with what the adapter of each row's request should add.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from attnfix.patches.lab.sglang.engine import module

_RANK, _TARGETS = 8, ("q_proj", "k_proj", "v_proj")
SLOTS = 2  # of a batch, the model alone among them: requests of two adapters leave none for it


def install() -> None:
    """Let adapters be read from their files where the model's weights, `--load-format dummy`, are random, and let tables of
    how kernels are launched be looked for by the name of the device."""
    import torch

    module("lora.backend.chunked_backend")
    for kernels in [home for name, home in sys.modules.items() if name.endswith(".lora_tuning_config")]:
        kernels.get_device_name = torch.cuda.get_device_name
    kind = module("lora.lora").LoRAAdapter
    made = kind.__init__

    def of_files(self: Any, uid: Any, config: Any, base: Any, load_config: Any, *args: Any, **kwargs: Any) -> None:
        made(self, uid, config, base, type(load_config)(), *args, **kwargs)

    kind.__init__ = of_files


def name(adapter: int) -> str:
    return f"adapter-{adapter}"


def flags(config: dict[str, Any], count: int) -> list[str]:
    """Beside those of `space.flags`; the engine's checks of a launch with adapters want a name of the model."""
    paths = [f"{name(adapter)}={_written(config, adapter)}" for adapter in range(1, count + 1)]
    return ["--served-model-name", "m", "--lora-paths", *paths]


def _weights(config: dict[str, Any], adapter: int) -> dict[tuple[str, str], Any]:
    """(target, "A" or "B") -> tensor, of each layer."""
    import torch

    draw = torch.Generator().manual_seed(adapter)
    heads = {"q_proj": config["num_attention_heads"]}
    wide = {target: heads.get(target, config["num_key_value_heads"]) * config["head_dim"] for target in _TARGETS}
    shapes = {(target, "A"): (_RANK, config["hidden_size"]) for target in _TARGETS}
    shapes |= {(target, "B"): (wide[target], _RANK) for target in _TARGETS}
    return {of: torch.randn(shape, generator=draw).to(torch.float16) / 4 for of, shape in sorted(shapes.items())}


def _written(config: dict[str, Any], adapter: int) -> str:
    from safetensors.torch import save_file

    folder, layers = Path(tempfile.mkdtemp(prefix="attnfix-adapter-")), range(config["num_hidden_layers"])
    file = {
        f"base_model.model.model.layers.{layer}.self_attn.{target}.lora_{part}.weight": tensor.clone()
        for layer in layers
        for (target, part), tensor in _weights(config, adapter).items()
    }
    save_file(file, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": _RANK, "lora_alpha": _RANK, "target_modules": _TARGETS}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return str(folder)


def added(config: dict[str, Any], adapter: int, x: Any) -> Any:
    """What an adapter adds to the rows of queries, keys and values that are projected from `x`, in float64."""
    import torch

    weights = {of: tensor.double() for of, tensor in _weights(config, adapter).items()}
    return torch.cat([x.double() @ weights[target, "A"].T @ weights[target, "B"].T for target in _TARGETS], -1)


def takes(part: Any) -> bool:
    """Whether this is a layer's projection to queries, keys and values, to which adapters add."""
    return type(part).__name__ == "QKVParallelLinearWithLoRA"
