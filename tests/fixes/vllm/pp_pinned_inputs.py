"""Rows of vllm.pp-pinned-inputs for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import NOT_HIT, POSSIBLE
from tests.support.deployments import VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Mixtral", "h100", VLLM + "--pipeline-parallel-size 4 --no-async-scheduling", POSSIBLE, "copies to the GPU"),
    ("0.25.1", "Mixtral", "h100", VLLM + "--pipeline-parallel-size 2 --no-async-scheduling", NOT_HIT, "pipeline"),
    ("0.25.1", "Mixtral", "h100", VLLM + "--pipeline-parallel-size 4 --async-scheduling", NOT_HIT, "--async-scheduling"),
    ("0.14.0", "Llama", "h100", VLLM + "--pipeline-parallel-size 4", POSSIBLE, "copies to the GPU"),
    ("0.31.0", "Llama", "h100", VLLM + "--pipeline-parallel-size 4 --no-async-scheduling", NOT_HIT, "V2"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"model runner": (("V1",), "V2"), "pipeline parallel size": ((3,), 2), "async scheduling": (("off",), "on")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its space has one stage, and no GPU that is behind"
#: Why what the target enters needs no witness
RUN_AS_IT_IS = "it makes a runner as it is made, and sets an event; what waits for it and copies are witnesses"
