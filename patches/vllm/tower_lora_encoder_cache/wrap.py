"""Correction of vllm.tower-lora-encoder-cache: an image is known by its hash, and by the adapter that encodes it."""

from __future__ import annotations

from typing import Any

from attnfix.compat.fix import Call
from attnfix.patches.vllm.shared.adapter_paths import AdapterPaths, reader

_paths = AdapterPaths()


def has_adapter(target: Any, instance: Any, lora_request: Any) -> bool:
    """Whether an adapter of the encoder goes into names of images that nobody else reads."""
    adapters = instance.lora_config
    if lora_request is None or adapters is None or not adapters.enable_tower_connector_lora:
        return False
    if read_by := encoder_reader(instance.vllm_config) or reader(instance.vllm_config):
        target.leave_out(f"a {read_by} reads the names of images, which would change")
    return not read_by


def get_mm_identifier(call: Call, instance: Any, mm_hash: str, lora_request: Any) -> Any:
    """Returns the engine's name of an image, for a hash that has the adapter's path in it."""
    if _paths.had_another(lora_request):
        call.corrected()
    return call(mm_hash=with_path(mm_hash, str(lora_request.lora_path)))


def with_path(mm_hash: str, path: str) -> str:
    return f"{path!r}:{mm_hash}"


def encoder_reader(config: Any) -> str | None:
    """Who stores or sends what the encoder makes, under the names of images."""
    encoders = getattr(config, "ec_transfer_config", None)
    return f"EC connector {encoders.ec_connector}" if encoders is not None else None
