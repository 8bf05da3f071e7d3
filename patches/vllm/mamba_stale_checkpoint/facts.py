"""What decides vllm.mamba-stale-checkpoint alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, Fact, known, unknown
from attnfix.compat.doctor.deployment import Deployment, Makers
from attnfix.compat.doctor.vllm import linear_attention, mamba2_layers

_INTERVAL = "prefix-cache-retention-interval"
_PREFILL = "gdn-prefill-backend"


def _layers(it: Deployment) -> Fact:
    """Whether the layers with a state store checkpoints within a chunk. Mamba2's do; of linear attention, it depends."""
    mamba2, others = mamba2_layers(it), linear_attention(it)
    if mamba2.values != (OFF,) or others.values == (OFF,):
        return mamba2
    if it.option(_PREFILL).values == ("triton",) and not it.text_config().get("linear_attn_config"):
        return known(OFF, f"--{_PREFILL} triton")
    return unknown(f"{others.why}: they store checkpoints with FlashInfer's prefill (--{_PREFILL}), or with Kimi's own kernels")


def _reserved(it: Deployment) -> Fact:
    """For which chunks of a prompt the cache manager reserves a block."""
    interval = it.option(_INTERVAL, "0")
    if not interval.values:
        return unknown(interval.why)
    which = "the last one" if str(interval.values[0]) == "0" else "each"
    return known(which, f"{interval.why} {interval.values[0]}" if it.given(_INTERVAL) else f"no --{_INTERVAL}")


FACTS: Makers = {
    "layers that store checkpoints": _layers,
    "chunks that have a block for a checkpoint": _reserved,
}
