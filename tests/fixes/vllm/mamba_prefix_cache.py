"""Rows of vllm.mamba-prefix-cache for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import CACHED, MTP_METHOD, VLLM

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.25.1", "Next", "h100", CACHED + MTP_METHOD, HIT, "drafts from hidden states: on"),
    ("0.26.0", "3.5", None, CACHED + "-sc.method=qwen3_next_mtp", HIT, "with a recurrent state"),
    ("0.26.0", "Next", "h100", VLLM + MTP_METHOD, NOT_HIT, "no --enable-prefix-caching, default of"),
    ("0.26.0", "Next", "h100", VLLM + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.20.0", "Next", "h100", CACHED, NOT_HIT, "drafts from hidden states: off"),
    ("0.20.0", "Next", "h100", CACHED + "-sc.method=ngram", NOT_HIT, "method ngram"),
    ("0.20.0", "Next", "h100", CACHED + "-sc.model=x", POSSIBLE, "without a method"),
    ("0.20.0", "Next", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not read"),
    ("0.15.0", "Next", "h100", CACHED, HIT, "chunks after a preemption: anywhere"),
    ("0.15.0", "Falcon-H1", "h100", CACHED, POSSIBLE, "it depends on --mamba-cache-mode"),
    ("0.20.0", "Falcon-H1", "h100", CACHED + MTP_METHOD, HIT, "config.json has mamba_d_state"),
    ("0.20.0", "Llama", "h100", CACHED + MTP_METHOD, NOT_HIT, "no layers with a recurrent state"),
    ("0.20.0", "Granite", "h100", CACHED + MTP_METHOD, NOT_HIT, "layers of attention alone"),
    ("0.20.0", None, "h100", CACHED + MTP_METHOD, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
     "drafts from hidden states": (("on",), "off")},
    {"recurrent layers": (("on",), "off"), "cached prefixes of a hybrid model": (("on",), "off"),
     "chunks after a preemption": (("anywhere",), "with blocks")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "the former model runner alone has it, and no model with a recurrent state is built on that"
