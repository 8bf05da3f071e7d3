"""Rows of vllm.mamba-chunk-blocks for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, DFLASH_METHOD, MTP_METHOD, VLLM

_FLASHINFER = CACHED + "--attention-backend FLASHINFER "
_SKIPPED = CACHED + "--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers sliding_window "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.31.0", "Next-windows", "h100", _FLASHINFER, HIT, "FLASHINFER"),
    ("0.29.0", "Qwen4Exp", "h100", CACHED + "-tp 2", HIT, "sparse attention in blocks of their own"),
    ("0.33.0", "Next", "b200", CACHED + DFLASH_METHOD, POSSIBLE, "may have shorter blocks"),
    ("0.33.0", "Next-windows", "h100", CACHED + "--attention-backend FLASH_ATTN", POSSIBLE, "their blocks may be shorter"),
    ("0.33.0", "Next-windows", "h100", _SKIPPED + "--attention-backend FLASH_ATTN", POSSIBLE, "skip-layers"),
    ("0.33.0", "Next", "h100", _FLASHINFER + MTP_METHOD, NOT_HIT, "no layers with blocks of another length"),
    ("0.33.0", "Next-windows", "h100", VLLM + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.33.0", "Llama", "h100", _FLASHINFER, NOT_HIT, "no layers with a recurrent state"),
    ("0.33.0", None, "h100", _FLASHINFER, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
_STATES = {"recurrent layers": (("on",), "off"), "cache mode of states": (("align",), "none")}
WAYS = [
    {**_STATES, "attention backend": (("FLASHINFER",), "FLASH_ATTN"), "sliding-window layers": (("on",), "off")},
    {**_STATES, "blocks that the scheduler counts in": (("shorter",), "as long")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "recurrent": "mamba2",
    "attention-backend": "FLASHINFER",
    "attention": "MHA",
    "kv-cache-dtype": "fp8",
    "windows": "alternate",
    "enable-prefix-caching": True,
    "capability": (9, 0),
}
