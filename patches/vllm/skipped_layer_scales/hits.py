"""What decides vllm.skipped-layer-scales alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.vllm import attention_backend, sliding_window_layers

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


def _kernels(it: Deployment) -> Fact:
    """Whose kernels FLASHINFER runs. Those of TRT-LLM, on Blackwell, leave out the scales."""
    backend = attention_backend(it)
    if not backend.values:
        return backend
    why = f"{backend.why} {backend.values[0]}"
    if backend.values[0] != "FLASHINFER":
        return known("others", why)
    if it.gpu is None:
        return unknown(f"{why}: {NO_GPU}")
    if it.gpu.generation == 10:
        return unknown(f"{why}: TRT-LLM's kernels on {it.gpu}, which are right, but where they do not serve the model")
    return known("FlashInfer", f"{why} on {it.gpu}")


FACTS: Makers = {"layers left unquantised": _unquantised, "kernels of the attention backend": _kernels}
