"""What decides sglang.kv-scales-file alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers, either
from attnfix.compat.doctor.sglang import backend

_FILE = "quantization-param-path"
#: Backend -> first release in which it reads more of a layer's scales than a file leaves there
_WANTS_SINCE = {"fa3": "0.5.1", "flashinfer": "0.5.2", "triton": "0.5.10", "trtllm_mha": "0.5.1"}
_RIGHT = "torch_native", "flex_attention"


def _from_file(it: Deployment) -> Fact:
    """Whether scales are loaded from a file, which an FP8 cache of E4M3 alone does."""
    if it.absent(_FILE):
        return known(OFF, f"no --{_FILE}")
    dtype, file = it.option("kv-cache-dtype", "auto"), it.option(_FILE)
    if not dtype.values or not file.values:
        return file if dtype.values else dtype
    return known(ON if dtype.values == ("fp8_e4m3",) else OFF, f"{file.why}, {dtype.why} {dtype.values[0]}")


def _wanted(it: Deployment) -> Fact:
    """Whether prefill or decode reads more of them than a file leaves."""
    return either(*(_wants(it, phase) for phase in ("prefill", "decode")))


def _wants(it: Deployment, phase: str) -> Fact:
    found = backend(it, phase)
    if len(found.values) != 1:
        return unknown(found.why)
    name = str(found.values[0])
    why = f"{found.why} {name}"
    if name in _RIGHT:
        return known(OFF, why)
    if name not in _WANTS_SINCE:
        return unknown(f"what {name} reads of a file's scales was not read")
    if it.release is None:
        return unknown(f"{why}: what this release reads was not read")
    content = not it.since(_WANTS_SINCE[name]) or (name == "trtllm_mha" and it.since("0.5.14") and not it.since("0.5.16"))
    return known(OFF if content else ON, why)


FACTS: Makers = {"KV scales from a file": _from_file, "backends that want more than a file leaves": _wanted}
