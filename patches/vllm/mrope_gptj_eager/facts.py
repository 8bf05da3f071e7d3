"""What decides vllm.mrope-gptj-eager alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_LAUNCH, Deployment, Makers

_OPS = "compilation-config.custom_ops"
#: Options that say how a model is compiled, and their values for a model that is not
_NOT_COMPILED = {"compilation-config.mode": ("0", "NONE"), "compilation-config.level": ("0",), "optimization-level": ("0",)}
#: Options by which custom ops may be on in a model that is compiled
_OTHERS = tuple(f"compilation-config.{key}" for key in ("mode", "level", "backend", "use_inductor", "pass_config"))


def _rotation(it: Deployment) -> Fact:
    """By its kernel, or by code in torch that is compiled with the model: `CustomOp.enabled` of 0.10.2-0.26.0."""
    if it.release is not None and not it.since("0.10.2"):
        return known("kernel", "up to 0.10.1 by the kernel alone")
    if it.launch is None:
        return unknown(NO_LAUNCH)
    ops = it.option(_OPS)
    named = {op for op in ("all", "none", "+rotary_embedding", "-rotary_embedding") if ops.values and op in str(ops.values[0])}
    if found := next((op for op in ("-rotary_embedding", "+rotary_embedding", "none", "all") if op in named), None):
        return known("torch" if found[0] in "-n" else "kernel", f"{ops.why} has {found}")
    eager = it.option("enforce-eager", OFF)
    if eager.values != (OFF,):
        return known("kernel", eager.why) if eager.values == (ON,) else eager
    for name, values in _NOT_COMPILED.items():
        if str(next(iter(it.option(name, "").values), "")).upper() in values:
            return known("kernel", f"--{name} {values[-1]}")
    if option := next(filter(it.given, _OTHERS), None):
        return unknown(f"--{option} may choose it")
    return known("torch", eager.why)


FACTS: Makers = {"rotation by M-RoPE": _rotation}
