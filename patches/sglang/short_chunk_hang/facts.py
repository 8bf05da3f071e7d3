"""What decides sglang.short-chunk-hang alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_GPU, Deployment, Makers
from attnfix.compat.doctor.sglang import backend

#: The variable that sets the alignment of each backend which has one
_ALIGNED = {
    "flashinfer": "SGLANG_FLASHINFER_PREFILL_SPLIT_TILE_SIZE",
    "triton": "SGLANG_TRITON_PREFILL_TRUNCATION_ALIGN_SIZE",
}
_ALIGNMENT = 4096


def _who_aligns(it: Deployment) -> Fact:
    """The backend of prefill from 0.5.18 on. Before, the common one, whatever is named for prefill."""
    before = it.release is not None and not it.since("0.5.18")
    return it.option("attention-backend") if before and it.given("prefill-attention-backend") else backend(it, "prefill")


def _shorter(it: Deployment) -> Fact:
    """Whether a rank's chunk has fewer tokens than what its ends are aligned to."""
    prefill = _who_aligns(it)
    if not prefill.values:
        return prefill
    if not set(prefill.values) & set(_ALIGNED):
        return known(OFF, f"chunks of {', '.join(map(str, prefill.values))} end anywhere")
    if len(prefill.values) > 1:
        return unknown(f"the attention backend is one of {', '.join(map(str, prefill.values))}")
    name = str(prefill.values[0])
    chunk, alignment = it.number("chunked-prefill-size"), it.variables().get(_ALIGNED[name], _ALIGNMENT)
    if not chunk.values:
        return unknown(f"{chunk.why}; the engine goes by the memory of the GPU" if it.gpu else NO_GPU)
    if int(chunk.values[0]) <= 0:
        return known(OFF, f"{chunk.why} {chunk.values[0]}")
    ranks = it.number("dp-size", 1) if it.given("enable-dp-attention") else known(1, "")
    try:
        short = 0 < int(chunk.values[0]) // int(ranks.values[0]) < int(alignment)
    except (IndexError, ValueError):
        return unknown(f"{_ALIGNED[name]} or --dp-size is no number")
    return known(ON if short else OFF, f"{chunk.why} {chunk.values[0]}, aligned to {alignment}")


FACTS: Makers = {"chunk shorter than its alignment": _shorter}
