"""Correction of sglang.kv-scales-file.

A file leaves a number in a layer's `k_scale` and `v_scale`, and None in `k_scale_float` and `v_scale_float`. What is read:

| backend | to write | to read |
|---|---|---|
| fa3 | `k_scale`, which may be a number | `k_scale.expand(…)`: a tensor |
| flashinfer | the same | `k_scale_float`; before 0.5.2 `k_scale` |
| triton | the same; before 0.5.10 nothing | `k_scale_float`; before 0.5.10 nothing |
| trtllm_mha | the same; from 0.5.16 on a tensor | `k_scale_float`; from 0.5.14 on `k_scale` where that is None |
| torch_native, flex_attention | nothing | nothing |

The backends of prefill and decode share the layers. Beside one that leaves scales out nothing is set: answers would be wrong
where the engine ends with an error. So the last backend that is made decides; the scales are loaded before. FlashAttention 4
("fa4", the class of fa3) reads an FP8 cache without scales in prefill, and is left alone. Up to 0.5.13.post1 trtllm_mha reads
the scale of keys alone: that of values is the matter of sglang.trtllm-mha-kv-scales.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any

from attnfix.compat.fix import Call

#: Backends that write and read by a layer's scales, where their class names these at all
CLASSES = {
    "fa3": ("flashattention_backend", "FlashAttentionBackend"),
    "flashinfer": ("flashinfer_backend", "FlashInferAttnBackend"),
    "triton": ("triton_backend", "TritonAttnBackend"),
    "trtllm_mha": ("trtllm_mha_backend", "TRTLLMHAAttnBackend"),
}
#: Backend -> what its class names where it wants tensors
WANTS_TENSORS = {"fa3": "expand", "trtllm_mha": "fused_fp8_qkv_kv_cache"}


def lacks(target: Any, instance: Any, model_runner: Any) -> tuple[list[Any], bool] | None:
    """(layers whose scales come from a file, whether tensors are wanted), where the model's backends read what these lack."""
    layers = layers_of(getattr(model_runner, "model", None))
    kinds = kinds_of(model_runner) if layers else {}
    if type(instance) not in kinds.values():  # a subclass may read otherwise
        return None
    named = {backend: names_in(kind) for backend, kind in kinds.items()}
    tensors = any(WANTS_TENSORS.get(backend) in names for backend, names in named.items())
    if not tensors:
        numbers = any("k_scale_float" in names for names in named.values())
        layers = [one for one in layers if numbers and one.k_scale_float is None]
    return (layers, tensors) if layers else None


def layers_of(model: Any) -> list[Any]:
    """Attention layers of a model that a file has given numbers."""
    modules = model.modules() if hasattr(model, "modules") else ()
    return [one for one in modules if isinstance(getattr(one, "k_scale", None), float) and hasattr(one, "k_scale_float")]


def kinds_of(runner: Any) -> dict[str, Any]:
    """{name: class} of the backends of prefill and decode; empty where one leaves out scales, or is not loaded yet."""
    names: Any = [getattr(runner, f"{phase}_attention_backend_str", None) for phase in ("prefill", "decode")]
    if None in names:  # 0.5.16 and 0.5.17 tell the runner afterwards
        names = runner.server_args.get_attention_backends()
    kinds = {name: _class(name) for name in names}
    return kinds if all(kind and "k_scale" in names_in(kind) for kind in kinds.values()) else {}


def _class(name: str) -> Any:
    file, kind = CLASSES.get(name, ("", ""))
    return getattr(sys.modules.get(f"sglang.srt.layers.attention.{file}"), kind, None)


def names_in(kind: type) -> set[str]:
    """Names of what a class's own methods use."""
    codes = (getattr(inspect.unwrap(one), "__code__", None) for one in vars(kind).values() if callable(one))
    return {name for code in codes if code for name in code.co_names}


def construct(call: Call, instance: Any, model_runner: Any) -> None:
    """`__init__` of a backend. The layers then have what a checkpoint's scales would have left."""
    call()
    layers, tensors = call.found
    for layer in layers:
        complete(layer, model_runner.device if tensors else None)
    call.corrected()


def complete(layer: Any, device: Any) -> None:
    """Set the numbers, and with a `device` the tensors, float32 without dimensions."""
    import torch

    for name in ("k_scale", "v_scale"):
        scale = getattr(layer, name)
        setattr(layer, f"{name}_float", scale)
        if device is not None:
            setattr(layer, name, torch.tensor(scale, dtype=torch.float32, device=device))
