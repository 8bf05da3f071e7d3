"""Which names of LoRA adapters had several paths, and who reads what is named after adapters outside of the engine's caches."""

from __future__ import annotations

from typing import Any

_NAMES = 10_000


class AdapterPaths(dict[str, str]):
    """Name of an adapter -> its path in this process, or none where it has had several."""

    def had_another(self, adapter: Any) -> bool:
        """Whether the engine would take for this adapter's what one of its name has left from another path."""
        path = str(adapter.lora_path)
        if len(self) > _NAMES:
            self.clear()
        if mistaken := self.setdefault(adapter.lora_name, path) != path:
            self[adapter.lora_name] = ""
        return mistaken


def reader(config: Any) -> str | None:
    """Who reads hashes of blocks, and what goes into them, outside of the engine's own cache."""
    if config.kv_transfer_config is not None:
        return f"KV connector {config.kv_transfer_config.kv_connector}"
    events = config.kv_events_config
    return "subscriber of KV events" if events is not None and events.enable_kv_cache_events else None
