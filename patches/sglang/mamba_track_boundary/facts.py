"""What decides sglang.mamba-track-boundary alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers, switch
from attnfix.compat.doctor.sglang import FACTS as SHARED
from attnfix.compat.doctor.sglang import MAMBA2

#: Architectures for which the engine chooses extra_buffer
_TRACKED = {
    "BailingMoeV2_5ForCausalLM", "InternS2PreviewForConditionalGeneration", "MiniCPMV4_6ForConditionalGeneration",
    "Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration",
}  # fmt: skip
#: Keys of config.json that models with recurrent layers have
_OTHERS = frozenset({"linear_num_value_heads", "linear_attn_config", "hybrid_override_pattern", "mamba_d_state"})
_EXTRA = ("extra_buffer", "extra_buffer_lazy")


def _recurrent(it: Deployment) -> Fact:
    if it.config is None:
        return unknown(NO_CONFIG)
    architecture = it.architecture()
    if architecture in MAMBA2:
        return SHARED["Mamba2 layers"](it)
    if architecture in _TRACKED:
        return known(ON, f"architecture {architecture}")
    if not _OTHERS.isdisjoint(it.text_config()):
        return unknown(f"whether states of architecture {architecture} are kept was not read")
    return known(OFF, f"architecture {architecture}")


def _tracked(it: Deployment) -> Fact:
    """Whether two buffers take states by turns, while the scheduler prepares a step ahead."""
    for option in ("disable-radix-cache", "disable-overlap-schedule"):
        off = it.option(option, OFF)
        if off.values != (OFF,):
            return switch(off, OFF)
    strategy = it.option("mamba-radix-cache-strategy", "auto")
    if strategy.values == ("auto",):
        if it.release is None:
            return Fact((ON, OFF), strategy.why)
        if not it.since("0.5.14"):
            return known(OFF, f"{strategy.why}, which is no_buffer before 0.5.14")
        linear = it.option("linear-attn-backend", "triton")
        if linear.values and linear.values != ("triton",):
            return known(OFF, f"{linear.why} {linear.values[0]}")
        return known(ON, strategy.why) if linear.values else linear
    chosen = f"{strategy.why} {strategy.values[0]}" if strategy.values else strategy.why
    return Fact(tuple(ON if value in _EXTRA else OFF for value in strategy.values), chosen)


FACTS: Makers = {
    "recurrent layers": _recurrent,
    "states kept by turns": _tracked,
}
