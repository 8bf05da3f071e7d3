"""Rows of sglang.draft-row-spill for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import ADAPTIVE, BLOCK, CHAIN, DSPARK, LONG_CHAIN, NGRAM, SGL, SHORT_BY_ONE, SPEC, WIDE

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.23", "Llama", "a100", WIDE, HIT, "12 slots behind the context length, 40 given"),
    ("0.5.13", "R1", "h100", CHAIN + "--speculative-num-draft-tokens 4", NOT_HIT, "wide enough"),
    ("0.5.23", "Llama", "h100", WIDE + "--page-size 64", NOT_HIT, "pages of several slots"),
    ("0.5.13", "Llama", "h100", WIDE + "--page-size 64", NOT_HIT, "trees of drafts with pages"),
    ("0.5.13", "Llama", "h100", LONG_CHAIN + "--page-size 64", HIT, "20 slots behind"),
    ("0.5.23", "Llama", "h100", LONG_CHAIN, HIT, "20 slots behind the context length, 32 given"),
    ("0.5.23", "Llama", "h100", CHAIN + "--speculative-num-draft-tokens 16", NOT_HIT, "wide enough"),
    ("0.5.23", "R1", "h100", LONG_CHAIN + "--attention-backend fa3 --dcp-size 2", NOT_HIT, "several"),
    ("0.5.18", "R1", "h100", LONG_CHAIN + "--attention-backend fa3 --dcp-size 2", POSSIBLE, "dcp"),
    ("0.5.13", "Llama", "h100", SHORT_BY_ONE, POSSIBLE, "short by one"),
    ("0.5.23", "Llama", "h100", NGRAM, HIT, "16 slots behind the context length, 24 given"),
    ("0.5.23", "Llama", "h100", NGRAM + "--speculative-ngram-max-bfs-breadth 1 --speculative-num-draft-tokens 4", NOT_HIT,
     "wide enough"),
    ("0.5.14", "Llama", "h100", NGRAM, HIT, "24 given"),
    ("0.5.13", "Llama", "h100", NGRAM, NOT_HIT, "slots of one step before 0.5.14"),
    ("0.5.23", "Llama", "h100", BLOCK + "--speculative-num-draft-tokens 16", HIT, "32 given"),
    ("0.5.23", "Llama", "h100", BLOCK + "--speculative-dflash-block-size 16", HIT, "32 given"),
    ("0.5.23", "Llama", "h100", BLOCK, POSSIBLE, "name --speculative-num-draft-tokens"),
    ("0.5.23", "Llama", "h100", DSPARK + "--speculative-dspark-block-size 15", HIT, "32 given"),
    ("0.5.23", "Llama", "h100", CHAIN + "--speculative-adaptive", POSSIBLE, "may raise the number"),
    ("0.5.23", "Llama", "h100", LONG_CHAIN + ADAPTIVE, HIT, "32 given"),
    ("0.5.23", "Llama", "h100", None, POSSIBLE, "needs the launch command"),
    ("0.5.23", "Llama", "h100", WIDE + "--config a.yaml", POSSIBLE, "a.yaml"),
    ("0.5.23", "Llama", "h100", NGRAM + "--speculative-num-draft-tokens 4", HIT, "20 given"),
    ("0.5.23", "Llama", "h100", LONG_CHAIN + "--enable-unified-memory", POSSIBLE, "unified-memory"),
    ("0.5.23", "Llama", "h100", LONG_CHAIN + "--attention-backend triton --speculative-draft-attention-backend trtllm_mha",
     POSSIBLE, "name --page-size"),
    ("0.5.23", "Llama", "h100", WIDE + "--disaggregation-mode prefill", NOT_HIT, "no decode step"),
    ("0.5.23", "R1", "h100", WIDE + "--attention-backend flashmla", NOT_HIT, "pages of several"),
    ("0.5.23", "R1", "h100", WIDE + "--attention-backend flashmla --page-size 1", NOT_HIT, "several"),
    ("0.5.23", "Llama", "b200", WIDE + "--attention-backend fa4", POSSIBLE, "name --page-size"),
    ("0.5.23", "V3.2", "h100", LONG_CHAIN, POSSIBLE, "name --page-size"),
    ("0.5.23", None, "h100", LONG_CHAIN + "--attention-backend fa3", POSSIBLE, "name --page-size"),
    ("0.5.23", "Llama", "h100", SPEC, POSSIBLE, "name --speculative-num-steps"),
    *(("0.5.23", "Llama", "h100", WIDE.replace("EAGLE", name), verdict, "") for name, verdict in
      (("eagle", HIT), ("nextn", HIT), ("FROZEN_KV_MTP", HIT), ("MINE", POSSIBLE))),
    ("0.5.23", "Llama", "h100", NGRAM.lower(), HIT, "24 given"),
    ("0.5.23", "Llama", "h100", NGRAM + "--speculative-ngram-max-bfs-breadth 0", POSSIBLE, "name"),
    ("0.5.23", "Llama", "h100", SPEC + "--speculative-num-steps -3 --speculative-eagle-topk 1", POSSIBLE, "1 or more"),
    ("0.5.16", "R1", "mi300x", LONG_CHAIN + "--attention-backend aiter --dcp-size 8", POSSIBLE, "dcp"),
    ("0.5.23", "Llama", "h100", SGL + "--speculative-algorithm none", NOT_HIT, "spec v2: off"),
    ("0.5.23", "Llama", "h100", SGL + "--speculative-algorithm UNO", NOT_HIT, "spec v2: off"),
    ("0.5.23", "Llama", "h100", SGL, NOT_HIT, "speculative algorithm: none"),
    ("0.5.23", "Llama", "h100", "SGLANG_ENABLE_SPEC_V2=0 " + WIDE, HIT, "spec v2: on"),
]  # fmt: skip
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [
    {"spec v2": (("on",), "off"), "rows of slots": (("too short",), "wide enough")},
    {"speculative algorithm": (("DFLASH", "DSPARK", "FROZEN_KV_MTP", "NGRAM"), "none"),
     "rows of slots": (("too short",), "wide enough")},
]  # fmt: skip
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = {"speculative-algorithm": "EAGLE", "page-size": 16}
