"""Rows of sglang.yarn-settings for the tests that try every fix."""

from __future__ import annotations

from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from tests.support.deployments import SGL

#: release, model, GPU, launch, verdict, words of a reason
DEPLOYMENTS = [
    ("0.5.6.post2", "gpt-oss", "h100", SGL, HIT, "`truncate` of YaRN in config.json, and sglang 0.5.6.post2"),
    ("0.5.15.post1", "Ministral3", "h100", SGL, HIT, "`mscale_all_dim` of YaRN"),
    ("0.5.7", "gpt-oss", "h100", SGL, NOT_HIT, "sglang 0.5.7"),
    ("0.5.6", "gpt-oss-rounded", "h100", SGL, NOT_HIT, "config.json has none"),
    ("0.5.9", "R1", "h100", SGL, NOT_HIT, "a YaRN of their own"),
    ("0.5.11", "Ministral3", "h100", SGL + "--model-impl transformers", NOT_HIT, "--model-impl"),
    ("0.5.11", None, "h100", SGL, POSSIBLE, "config.json"),
]
#: Facts of one way to the bug: name -> (values that hit, one that does not)
WAYS = [{"settings of YaRN that are not read": (("on",), "off")}]
#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "a table that is made while a model is loaded, which the space's models do not load"
RUN_AS_IT_IS = "the embedding's constructor runs as it is; the table that it leaves is written anew"
#: Functions that the engine gets without a guard, and why
UNGUARDED = {"table.bound": "it runs while the fix computes a table, and not for the engine"}
