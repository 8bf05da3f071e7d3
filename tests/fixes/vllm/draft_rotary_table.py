"""Rows of vllm.draft-rotary-table for the tests that try every fix."""

from __future__ import annotations

import tempfile
from pathlib import Path

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP, VLLM

_V2 = "VLLM_USE_V2_MODEL_RUNNER=1 "
#: Where a drafter's config.json lies, whose length is 2048
_FOLDER = tempfile.mkdtemp(prefix="attnfix-drafter-")
(Path(_FOLDER) / "config.json").write_text('{"max_position_embeddings": 2048}')
_DRAFTS = _V2 + MTP + f"-sc.model={_FOLDER} --max-model-len 8192 "
_ABSENT = _V2 + MTP + "-sc.model=/no/drafter --max-model-len 8192 "
_LONGER = "-sc.method=mtp --hf-overrides.max_position_embeddings=8192"

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.26.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle3", HIT, "2048, the server's 8192"),
    ("0.12.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle", HIT, "2048, the server's 8192"),
    ("0.32.0", "Llama", "h100", _DRAFTS + "-sc.method=dflash", HIT, "2048, the server's 8192"),
    ("0.26.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle3 --max-model-len 2048", NOT_HIT, "the server's 2048"),
    ("0.26.0", "Llama", "h100", _DRAFTS, POSSIBLE, "the engine finds the method"),
    ("0.26.0", "Llama", "h100", _ABSENT + "-sc.method=eagle3", POSSIBLE, "needs the drafter's config.json"),
    ("0.27.0", "Llama", "h100", _DRAFTS + "-sc.method=eagle3", NOT_HIT, "eagle3 in vLLM 0.27.0"),
    ("0.32.0", "Llama", "h100", _V2 + MTP + "-sc.method=mtp", NOT_HIT, "mtp"),
    ("0.32.0", "Llama", "h100", _ABSENT + _LONGER, POSSIBLE, "lengthens the target"),
    ("0.32.0", "Llama", "h100", _DRAFTS + "-sc.method=draft_model", NOT_HIT, "draft_model"),
    ("0.26.0", "Llama", "h100", "VLLM_USE_V2_MODEL_RUNNER=0 " + MTP + "-sc.method=eagle3", NOT_HIT, "model runner: V1"),
    ("0.26.0", "Llama", "h100", VLLM, NOT_HIT, "drafters with a length of their own: off"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"model runner": (("V2",), "V1"), "drafters with a length of their own": (("on",), "off"),
     "a drafter shorter than the server": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "its drafters have the target's config.json"
RUN_AS_IT_IS = "the speculator's constructor and the config's hash run as they are; the correction is a number, set before them"
