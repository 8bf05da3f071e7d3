"""Rows of vllm.mamba-stale-checkpoint for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import MTP_METHOD, ONE_DRAFT, VLLM
from tests.support.ways import CHECKPOINTS

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.33.0", "Nemotron", "h100", VLLM + ONE_DRAFT, HIT, "draft tokens of a step: one"),
    ("0.32.0", "Falcon-H1", "b200", VLLM + ONE_DRAFT, HIT, "has layers of Mamba2"),
    ("0.33.0", "Nemotron", "h100", VLLM + MTP_METHOD, NOT_HIT, "of a step: several"),
    ("0.33.0", "Nemotron", "h100", VLLM, NOT_HIT, "sliding-window layers: off"),
    ("0.33.0", "Nemotron-windows", "h100", VLLM, HIT, "config.json has sliding_window"),
    ("0.33.0", "Nemotron", "h100", VLLM + "-sc.method=eagle -sc.model=d", POSSIBLE, "drafter"),
    ("0.33.0", "Nemotron", "h100", VLLM + "-sc.model=d", POSSIBLE, "drafter's config.json"),
    ("0.33.0", "Nemotron", "h100", VLLM + "--config a.yaml", POSSIBLE, "a.yaml, which is not"),
    ("0.33.0", "Nemotron", "h100", VLLM + ONE_DRAFT + "--prefix-cache-retention-interval 512", NOT_HIT, "a checkpoint: each"),
    ("0.33.0", "Nemotron", "h100", VLLM + ONE_DRAFT + "--prefix-cache-retention-interval 0", HIT, "a checkpoint: the last one"),
    ("0.33.0", "Nemotron", "h100", VLLM + ONE_DRAFT + "--no-enable-prefix-caching", NOT_HIT, "prefix-caching"),
    ("0.33.0", "Next", "h100", VLLM + ONE_DRAFT, POSSIBLE, "with FlashInfer's prefill (--gdn-prefill-backend)"),
    ("0.33.0", "Next", "h100", VLLM + ONE_DRAFT + " --gdn-prefill-backend triton", NOT_HIT, "--gdn-prefill-backend triton"),
    ("0.33.0", "Llama", "h100", VLLM + ONE_DRAFT, NOT_HIT, "no layers of Mamba2"),
    ("0.33.0", None, "h100", VLLM + ONE_DRAFT, POSSIBLE, "config.json"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {**CHECKPOINTS, "draft tokens of a step": (("one",), "several")},
    {**CHECKPOINTS, "sliding-window layers": (("on",), "off")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {
    "recurrent": "mamba2",
    "speculative-method": "ngram",
    "num-speculative-tokens": 1,
    "enable-prefix-caching": True,
}
