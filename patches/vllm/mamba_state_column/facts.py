"""What decides vllm.mamba-state-column alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.vllm import sliding_window_layers

#: Methods of speculation whose layers have the target's blocks, or that have no layers
_OF_THE_TARGET = "none", "mtp", "ngram", "suffix", "medusa"


def _blocks(it: Deployment) -> Fact:
    """Whether some layers have shorter blocks than recurrent states. Which ones do, no option says."""
    if it.config is None:
        return unknown(NO_CONFIG)
    ranks = {name: it.number(name, 1) for name in ("tensor-parallel-size", "pipeline-parallel-size")}
    for name, fact in ranks.items():
        if fact.values != (1,):
            return fact if not fact.values else unknown(f"--{name}: workers in processes of their own should keep the size")
    if str(it.architecture()).startswith("Qwen4Exp") and not it.since("0.30.0"):  # later, such blocks do not count
        return known("shorter", f"{it.architecture()} keeps keys of sparse attention in blocks of their own")
    method = it.option("speculative-config.method", "none")
    if not method.values:
        return method
    name = str(method.values[0]).lower()
    if name == "none" and it.given("speculative-config"):
        return unknown("--speculative-config without a method: the drafter's config.json decides")
    if not name.endswith(_OF_THE_TARGET):
        return unknown(f"{method.why} {name}: a drafter with a sliding window may have shorter blocks")
    windows = sliding_window_layers(it)
    if windows.values == (ON,):
        return unknown(f"{windows.why}: their blocks may be shorter")
    return known("as long", "no layers with blocks of another length are known of it")


FACTS: Makers = {"blocks beside those of states": _blocks}
