"""What decides sglang.mamba2-prefill-graph alone."""

from __future__ import annotations

from attnfix.compat.doctor.condition import OFF, ON, Fact, known, unknown
from attnfix.compat.doctor.deployment import NO_CONFIG, Deployment, Makers
from attnfix.compat.doctor.gpus import NVIDIA

_NEMOTRON = ("NemotronHForCausalLM", "NemotronHPuzzleForCausalLM")
#: The first release in which they break under data-parallel attention, too (PR 34561)
_NEMOTRON_BREAKS = "0.5.19"
#: Releases from which a prefill graph stays under data-parallel attention, and that of a NemotronH (0.5.15 server_args.py:3372)
_WITH_DP, _NEMOTRON_WITH_DP = "0.5.17", "0.5.18"
#: Options by which a server has no prefill graph with breaks (ServerArgs, 0.5.15-0.5.23)
_WITHOUT = ("disable-cuda-graph", "disable-prefill-cuda-graph", "disable-piecewise-cuda-graph", "enforce-piecewise-cuda-graph")
#: Options with which some releases leave the graph out, unless a backend for it is named
_MAY_LEAVE_OUT = ("cuda-graph-config", "pp-size", "dcp-size", "attn-cp-size", "enable-two-batch-overlap", "moe-a2a-backend",
                  "enable-memory-saver", "enable-torch-compile", "disaggregation-mode", "enable-lora", "lora-paths",
                  "enable-mis", "debug-tensor-dump-output-folder", "chunked-prefill-size")  # fmt: skip
_WITHOUT_GRAPHS = ("torch_native", "flex_attention")


def _outside(it: Deployment) -> Fact:
    name = it.architecture()
    if name is None:
        return unknown(NO_CONFIG)
    if name in _NEMOTRON and it.given("enable-dp-attention"):
        if it.release is None:
            return unknown("needs the release")
        return known(OFF if it.since(_NEMOTRON_BREAKS) else ON, f"architecture {name}, --enable-dp-attention")
    return known(ON if name == "FalconH1ForCausalLM" else OFF, f"architecture {name}")


def _breaks(it: Deployment) -> Fact:
    if it.given("cuda-graph-backend-prefill"):
        name = next(iter(it.option("cuda-graph-backend-prefill").values), None)
        return known(ON if name == "breakable" else OFF, f"--cuda-graph-backend-prefill {name}")
    if it.given("enable-breakable-cuda-graph"):
        return known(ON, "--enable-breakable-cuda-graph")
    if named := next(filter(it.given, _WITHOUT), None):
        return known(OFF, f"--{named}")
    if it.gpu is None:
        return unknown("needs the GPU")
    if it.gpu.maker != NVIDIA:
        return known(OFF, "the default of GPUs that are not NVIDIA's")
    if it.given("enable-dp-attention"):
        if it.release is None:
            return unknown("needs the release")
        if not it.since(_NEMOTRON_WITH_DP if it.architecture() in _NEMOTRON else _WITH_DP):
            return known(OFF, f"--enable-dp-attention in sglang {it.release}")
    if named := next(filter(it.given, _MAY_LEAVE_OUT), None):
        return unknown(f"--{named} may leave the graph out; name --cuda-graph-backend-prefill")
    if (name := next(iter(it.option("attention-backend", OFF).values), None)) in _WITHOUT_GRAPHS:
        return unknown(f"--attention-backend {name} may leave the graph out; name --cuda-graph-backend-prefill")
    return known(ON, f"default of sglang {it.release}" if it.release else "the default")


FACTS: Makers = {"Mamba2 layers without a break of their own": _outside, "prefill graph with breaks": _breaks}
