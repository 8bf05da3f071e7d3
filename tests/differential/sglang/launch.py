"""A scheduler of sglang, constructed by the engine from a launch command's flags, on a machine without a GPU.

What cannot be had here, and what stands there instead:
- Processes: the scheduler's alone is constructed. Its sockets are made; nobody listens, and requests come from the caller.
- The device: see `device`. Layers other than attention take the engine's own native path, as they do wherever the engine sees
  no GPU. The compute capability is said to be 9.0.
- Weights are random (`--load-format dummy`).
- Compiled packages (sgl_kernel, FlashInfer) are not installed: `kernels` has what stands at their entry points.
"""

from __future__ import annotations

import inspect
import json
import logging
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from attnfix.patches.lab.proof import replaced
from attnfix.patches.lab.sglang.engine import accepted, module
from attnfix.patches.lab.sglang.mamba2 import taken_for_cuda

from ..protocol import Settings, refusing
from . import adapters, device, space

_LOOKED_AT = ("sglang.srt.utils", "sglang.srt.layers.attention.flashattention_backend")

_BLACKWELL = {"is_blackwell", "is_blackwell_supported"}
_checks_see_sm100 = False


def ease() -> None:
    """Before the engine's models are imported: names that they import where they see no GPU, and that nothing here calls."""
    for name in ("vllm", "vllm._custom_ops"):
        sys.modules.setdefault(name, types.ModuleType(name))
    vars(sys.modules["vllm._custom_ops"]).setdefault("rotary_embedding", None)
    logging.disable(logging.WARNING)


def on_hopper() -> None:
    """Let the engine's modules, once imported, see a device with graphs, and the compute capability that torch tells."""
    import torch

    module("layers.attention.attention_registry")
    platforms = module("platforms.interface")
    if hasattr(platforms, "PlatformCapabilities"):
        kind = platforms.PlatformCapabilities
        platforms.SRTPlatform.capabilities = kind(**accepted(kind, {"graph_capture": True, "supports_triton": True}))
    for name, home in list(sys.modules.items()):
        # Not where fixes look at the function, and stand back from another
        if name.startswith("sglang.") and not name.startswith(_LOOKED_AT) and "get_device_capability" in vars(home):
            vars(home)["get_device_capability"] = torch.cuda.get_device_capability


def on_blackwell(used: set[str]) -> None:
    """Let the engine's checks of its flags see a Blackwell: what TRT-LLM's backends are for. Other kernels stay Hopper's."""
    global _checks_see_sm100
    _checks_see_sm100 = "trtllm_mha" in used  # else the engine takes other kernels for experts, too
    for name, home in list(sys.modules.items()):
        if name.startswith("sglang."):
            for asked in vars(home).keys() & _BLACKWELL:
                vars(home)[asked] = lambda: True


def settle(*settled: Callable[[Any], None]) -> None:
    """Let the weights that a server begins with, which are random, be changed by these functions of the model."""
    loader = module("model_loader.loader")
    random = loader.initialize_dummy_weights

    def initialize(model: Any, *args: Any, **kwargs: Any) -> None:
        random(model, *args, **kwargs)
        for change in settled:
            change(model)

    loader.initialize_dummy_weights = initialize


@contextmanager
def _checking(settings: Settings) -> Iterator[None]:
    """What the engine raises in here is its refusal of flags, or of one that the release does not have."""
    with ExitStack() as stack:
        stack.enter_context(refusing(SystemExit))
        if settings["model"] == "hybrid":
            stack.enter_context(taken_for_cuda())
        for home in (module("utils.common"), module("server_args")) if _checks_see_sm100 else ():
            if hasattr(home, "is_sm100_supported"):
                stack.enter_context(replaced(home, "is_sm100_supported", lambda: True))
        yield


def server_args(config: Mapping[str, Any], settings: Settings, draft: Mapping[str, Any] | None = None) -> Any:
    """`ServerArgs` of a launch with these settings of a model with this config.json. Raises Refused where the engine does."""
    home, folder = module("server_args"), _model(config, scaled := settings["scales"] == "checkpoint")
    fields = inspect.signature(home.ServerArgs).parameters
    if settings.get("quantization-param-path"):
        settings = {**settings, "quantization-param-path": _scales(config)}
    flags = space.flags(settings, lambda name: name.replace("-", "_") in fields)
    given = ["--model-path", folder, "--device", "cuda", "--skip-tokenizer-init", *flags]
    given += ["--load-format", "auto" if scaled else "dummy"]
    given += adapters.flags(dict(config), settings["adapters"]) if settings["adapters"] else []
    if draft is not None:
        given += ["--speculative-draft-model-path", _model(draft)]
    if draft is not None and settings["speculative-adaptive"]:
        given += ["--speculative-adaptive-config", _table_of_drafts(settings)]
    with _checking(settings):
        args = home.prepare_server_args(given)
        if settings["adapters"]:  # which are looked up in there
            args.check_server_args()
        return args


def _model(config: Mapping[str, Any], scaled: bool = False) -> str:
    """A folder with this config.json; with `scaled` a checkpoint with scales of the KV cache, nothing else of which is FP8."""
    folder = Path(tempfile.mkdtemp(prefix="attnfix-model-"))
    if scaled:
        config = {**config, "quantization_config": _weights(config, folder / "model.safetensors")}
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def _weights(config: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Write a Llama's weights; what its config says of quantisation."""
    import torch
    from safetensors.torch import save_file

    hidden, wide, dim = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    heads, shared = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
    shapes = {
        "self_attn.q_proj": (heads, hidden), "self_attn.k_proj": (shared, hidden), "self_attn.v_proj": (shared, hidden),
        "self_attn.o_proj": (hidden, heads), "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden),
        "mlp.down_proj": (hidden, wide), "input_layernorm": (hidden,), "post_attention_layernorm": (hidden,),
    }  # fmt: skip
    weights = {"model.embed_tokens": (config["vocab_size"], hidden), "model.norm": (hidden,)}
    layers = [f"model.layers.{layer}" for layer in range(config["num_hidden_layers"])]
    weights |= {f"{layer}.{name}": shape for layer in layers for name, shape in shapes.items()}
    tensors = {f"{name}.weight": torch.full(shape, 1e-3, dtype=torch.float16) for name, shape in weights.items()}
    tensors |= {f"{layer}.self_attn.{name}_scale": torch.tensor(space.SCALE) for layer in layers for name in "kv"}
    save_file(tensors, file)
    ignored = [f"{layer}.{name}" for layer in layers for name in shapes if name.endswith("_proj")]
    return {"quant_method": "fp8", "activation_scheme": "dynamic", "ignored_layers": ignored}


def _table_of_drafts(settings: Settings) -> str:
    """A file that says how many drafts batches have."""
    file = Path(tempfile.mkdtemp(prefix="attnfix-drafts-")) / "drafts.json"
    file.write_text(json.dumps(space.drafts_by_batch(settings)))
    return str(file)


def _scales(config: Mapping[str, Any]) -> str:
    """A file of scales of the KV cache."""
    scales = {"0": {str(layer): space.SCALE for layer in range(config["num_hidden_layers"])}}
    file = Path(tempfile.mkdtemp(prefix="attnfix-scales-")) / "scales.json"
    file.write_text(json.dumps({
        "model_type": config["model_type"], "kv_cache": {"dtype": "float8_e4m3fn", "scaling_factor": scales},
    }))  # fmt: skip
    return str(file)


def scheduler(args: Any) -> Any:
    """The scheduler of a server with one rank. To be called, and used, within `surroundings`."""
    kind, ports = module("managers.scheduler").Scheduler, module("server_args").PortArgs.init_new(args)
    ranks = {
        "server_args": args, "port_args": ports, "gpu_id": 0, "tp_rank": 0, "moe_ep_rank": 0, "pp_rank": 0,
        "attn_cp_rank": 0, "moe_dp_rank": 0, "dp_rank": None,
    }  # fmt: skip
    with refusing():
        return kind(**accepted(kind, ranks))


@contextmanager
def surroundings(args: Any, settings: Settings) -> Iterator[None]:
    """A process of the server with these arguments, which were made of these settings."""
    context = module("runtime_context")
    with device.OnCpu():
        with _checking(settings):
            if hasattr(context, "SpawnRanks"):  # 0.5.21 and later
                context.publish(args, role="scheduler", ranks=context.SpawnRanks(world_rank=0, gpu_id=0))
            elif context and hasattr(context, "publish"):
                context.publish(args, role="scheduler")
        yield
