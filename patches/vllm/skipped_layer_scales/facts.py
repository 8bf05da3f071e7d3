"""What decides vllm.skipped-layer-scales alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import sliding_window_layers

_SKIP = "kv-cache-dtype-skip-layers"


def _unquantised(it: Deployment) -> Fact:
    """Whether some layer of a checkpoint with kv_cache_scheme keeps a cache of the model's dtype."""
    asked = it.option("kv-cache-dtype", "auto")
    if not asked.values:
        return asked
    if asked.values[0] in ("bfloat16", "float16"):
        why = f"{asked.why} {asked.values[0]}"
        if it.release is None:
            return unknown(f"{why}: up to 0.21.0 the checkpoint's scheme wins")
        if it.since("0.22.0"):
            return known(ON, why)
    skip = it.option(_SKIP, "")
    if not skip.values or not skip.values[0]:
        return Fact((OFF,) if skip.values else (), skip.why)
    if skip.values[0] != "sliding_window":
        return known(ON, f"{skip.why} {skip.values[0]}")
    windows = sliding_window_layers(it)
    if windows.values == (OFF,):  # of several names, the first alone is read
        return unknown(f"--{_SKIP} sliding_window, {windows.why}; more names may stand behind it")
    return Fact(windows.values, f"--{_SKIP} sliding_window, {windows.why}")


FACTS: Makers = {"layers left unquantised": _unquantised}
