"""What can be drawn for sglang. Settings are flags of the engine, without their dashes, and the model."""

from __future__ import annotations

from typing import Any

from ..protocol import Settings, Space
from . import models

AXES: dict[str, tuple[Any, ...]] = {
    "model": tuple(models.MODELS),
    "attention-backend": ("torch_native", "triton", "flex_attention"),
    "page-size": (1, 4, 16),
    "chunked-prefill-size": (64, 16, -1),
    "max-total-tokens": (2048, 192),
    "max-running-requests": (8, 2),
    "disable-radix-cache": (False, True),
    "disable-overlap-schedule": (True, False),
    "enable-mixed-chunk": (False, True),
    "kv-cache-dtype": ("auto", "fp8_e5m2"),
    "triton-attention-num-kv-splits": (8, 1),
}
_FIXED = ("--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled")
#: settings that are no flag
_OURS = ("model",)


def flags(settings: Settings) -> list[str]:
    """The launch command's flags."""
    given = list(_FIXED)
    for name, value in settings.items():
        if name in _OURS or value is False or value is None:
            continue
        given += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    return given


def narrow(settings: Settings) -> Any:
    """The dtype that rows are drawn in, where the cache holds fewer bits than the model's."""
    import torch

    return {"fp8_e5m2": torch.float8_e5m2, "fp8_e4m3": torch.float8_e4m3fn}.get(settings.get("kv-cache-dtype", "auto"))


def _edges(settings: Settings) -> list[int]:
    edges = [settings.get("page-size", 1), models.WINDOW]
    chunk = settings.get("chunked-prefill-size", -1)
    return edges + ([chunk] if chunk > 0 else [])


SPACE = Space(
    axes=AXES,
    edges=_edges,
    limit=lambda settings: models.CONTEXT,
    interpreted=lambda settings: settings.get("attention-backend") == "triton",
)
PLAINEST = {axis: values[0] for axis, values in AXES.items()}
