"""What doctor knows of sglang's speculative decoding, held against the releases."""

from __future__ import annotations

import pytest
from packaging.version import Version
from test_doctor_sources import text

from attnfix.compat import sglang_facts
from attnfix.compat.deployment import Deployment
from attnfix.compat.launch import Launch


@pytest.mark.parametrize("release, one", [("0.5.10.post1", False), ("0.5.11", True), ("0.5.12.post1", True), ("0.5.13", False)])
def test_spec_v2_takes_one_branch_alone(release, one):
    """With several branches these releases take spec v1; those before say no, and those behind run them."""
    assert ("spec v2 currently only supports topk = 1" in text("sglang", release, "srt/server_args.py")) is one
    options = {"speculative-algorithm": "EAGLE", "speculative-eagle-topk": "4"}
    launch = Launch("sglang", options=options, variables={"SGLANG_ENABLE_SPEC_V2": "1"})
    it = Deployment("sglang", Version(release), launch=launch)
    assert sglang_facts.MAKERS["spec v2"](it).values == ("off" if one else "on",)
