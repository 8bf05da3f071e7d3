"""Rows of vllm.undrafted-hybrid-row for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import BY_BATCH_SIZE, MTP, VLLM

_NGRAM = VLLM + "--speculative-config.method ngram --speculative-config.num_speculative_tokens 3 "

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.19.1", "Next", "h100", _NGRAM, HIT, "layers of linear attention"),
    ("0.12.0", "Next", "h100", _NGRAM, HIT, "layers of linear attention"),
    ("0.17.1", "Next", "h100", _NGRAM, HIT, "layers of linear attention"),
    ("0.28.0", "Nemotron", "h100", _NGRAM, HIT, "NemotronHForCausalLM has layers of Mamba2"),
    ("0.25.1", "3.5", "h100", MTP + "--no-async-scheduling", POSSIBLE, "model runner: V1 or V2"),
    ("0.25.1", "Next", "h100", MTP + "-sc.method=ngram_gpu", HIT, "ngram_gpu"),
    ("0.25.1", "Nemotron", "h100", MTP + BY_BATCH_SIZE, POSSIBLE, "model runner: V1 or V2"),
    ("0.18.1", "Nemotron", "h100", _NGRAM, NOT_HIT, "vLLM 0.18.1 runs no steps without drafts"),
    ("0.22.0", "Next", "h100", MTP + "-sc.method=mtp", NOT_HIT, "async scheduling: on"),
    ("0.19.1", "Llama", "h100", _NGRAM, NOT_HIT, "no layers of linear attention"),
    ("0.19.1", "Next", "h100", VLLM, NOT_HIT, "speculative decoding: off"),
    ("0.28.0", "Next", "h100", "VLLM_USE_V2_MODEL_RUNNER=1 " + _NGRAM, NOT_HIT, "model runner: V2"),
    ("0.19.1", None, "h100", _NGRAM, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
_V1 = {"speculative decoding": (("on",), "off"), "model runner": (("V1",), "V2")}
_GDN = {"linear attention": (("on",), "off"), **_V1}
_SYNC = {"async scheduling": (("off",), "on")}
WAYS = [
    {**_GDN, **_SYNC},
    {**_GDN, "drafts by batch size": (("on",), "off")},
    {**_GDN, "drafts trimmed behind the scheduler": (("on",), "off")},
    {"Mamba2 layers that verify drafts": (("on",), "off"), **_V1, **_SYNC},
]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "no model with Gated DeltaNet is in the space"
