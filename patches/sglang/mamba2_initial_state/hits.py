"""What decides sglang.mamba2-initial-state alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers, either, switch

#: Architectures whose Mamba2 layers the engine tracks states of (ServerArgs._support_mamba_cache_extra_buffer)
MAMBA2 = frozenset({"FalconH1ForCausalLM", "GraniteMoeHybridForCausalLM", "NemotronHForCausalLM", "NemotronHPuzzleForCausalLM"})
_TRACKS = ("extra_buffer", "extra_buffer_lazy")


def _mamba2(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    if architecture == "GraniteMoeHybridForCausalLM" and "mamba" not in (it.config.get("layer_types") or ()):
        return known(OFF, f"architecture {architecture} without mamba in layer_types")
    return known(ON if architecture in MAMBA2 else OFF, f"architecture {architecture}")


def _tracked(it: Deployment) -> Fact:
    """Whether prefill keeps states of prefixes in buffers of their own."""
    radix = it.option("disable-radix-cache", OFF)
    if radix.values != (OFF,):
        return switch(radix, OFF)
    strategy = it.option("mamba-radix-cache-strategy", "auto")
    if strategy.values != ("auto",):
        return Fact(tuple(ON if value in _TRACKS else OFF for value in strategy.values), _said(strategy))
    linear = it.option("linear-attn-backend", "triton")
    if linear.values and linear.values != ("triton",):
        return known(OFF, _said(linear))
    overlap, page = switch(it.option("disable-overlap-schedule", OFF), OFF), it.number("page-size", 1)
    paged = Fact(tuple(ON if int(size) > 1 else OFF for size in page.values), page.why)
    wanted = either(overlap, paged)
    return wanted if linear.values or wanted.values == (OFF,) else linear


def _said(fact: Fact) -> str:
    return f"{fact.why} {fact.values[0]}" if fact.values else fact.why


FACTS: Makers = {
    "Mamba2 layers": _mamba2,
    "tracked Mamba states": _tracked,
}
