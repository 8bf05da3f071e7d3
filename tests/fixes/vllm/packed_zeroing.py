"""Rows of vllm.packed-zeroing for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT
from tests.support.deployments import FP8, SKIP, VLLM

_WINDOWS = FP8 + SKIP + "sliding_window "
_NIXL = '--kv-transfer-config \'{"kv_connector": "NixlConnector", "kv_role": "kv_consumer"%s}\''
_TOGETHER = _NIXL % ', "kv_connector_extra_config": {"enable_cross_layers_blocks": "True"}'
_HYBRID = " --no-disable-hybrid-kv-cache-manager"

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.27.0", "V4", "h200", VLLM, HIT, "DeepseekV4ForCausalLM"),
    ("0.27.1", "Gemma3", "h100", _WINDOWS + _TOGETHER + _HYBRID, HIT, "enable_cross_layers_blocks"),
    ("0.27.1", "Gemma3", "h100", _WINDOWS + _NIXL % "", NOT_HIT, "enable_cross_layers_blocks"),
    ("0.27.1", "Gemma3", "h100", VLLM + _TOGETHER, NOT_HIT, "skip-layers"),
    ("0.27.1", "R1", "h200", VLLM, NOT_HIT, "DeepseekV3ForCausalLM"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"architecture": (("DeepseekV4ForCausalLM",), "DeepseekV3ForCausalLM")},
    {
        "layers of a connector in one block": (("on",), "off"),
        "layers of FP8 and others in the KV cache": (("on",), "off"), "sliding-window layers": (("on",), "off"),
        "hybrid KV cache manager": (("on",), "off"),
    },
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a pool in which several layers lie in one block, which no setting brings"
