"""What doctor knows of sglang alone, held against the releases as test_doctor_sources.py does."""

from __future__ import annotations

import ast

import pytest
from packaging.version import Version

from attnfix.compat.doctor import sglang
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import Launch
from tests.integration.test_doctor_sources import before, text, tree


def encoder_decoder(release: str) -> set[str]:
    """The architectures that `is_encoder_decoder_model` names."""
    asked = next(
        node
        for node in ast.walk(tree("sglang", release, "srt/configs/model_config.py"))
        if isinstance(node, ast.FunctionDef) and node.name == "is_encoder_decoder_model"
    )
    return {leaf.value for leaf in ast.walk(asked) if isinstance(leaf, ast.Constant)}


@pytest.mark.parametrize("architecture, first", sglang.ENCODER_DECODER_SINCE.items())
def test_encoder_decoder_since(architecture, first):
    assert architecture in encoder_decoder(first)
    if earlier := before("sglang", first):
        assert architecture not in encoder_decoder(earlier)
    newest = str(sglang.READ_UP_TO)
    assert encoder_decoder(newest) == set(sglang.ENCODER_DECODER_SINCE)


def with_window_pool(release: str) -> set[str]:
    for node in ast.walk(tree("sglang", release, "srt/configs/model_config.py")):
        if isinstance(node, ast.FunctionDef) and node.name == "is_hybrid_swa_model":
            return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
    return set()


@pytest.mark.parametrize("architecture, first", sglang.WINDOW_POOL_SINCE.items())
def test_window_pool_since(architecture, first):
    assert architecture in with_window_pool(first) & with_window_pool("0.5.11")
    assert architecture not in with_window_pool(before("sglang", first))
    assert not {*sglang.PLAIN, *sglang.MLA_SINCE} & with_window_pool("0.5.11")


@pytest.mark.parametrize("release, one", [("0.5.10.post1", False), ("0.5.11", True), ("0.5.12.post1", True), ("0.5.13", False)])
def test_spec_v2_takes_one_branch_alone(release, one):
    """With several branches these releases take spec v1; those before say no, and those behind run them."""
    assert ("spec v2 currently only supports topk = 1" in text("sglang", release, "srt/server_args.py")) is one
    options = {"speculative-algorithm": "EAGLE", "speculative-eagle-topk": "4"}
    launch = Launch("sglang", options=options, variables={"SGLANG_ENABLE_SPEC_V2": "1"})
    it = Deployment("sglang", Version(release), launch=launch)
    assert sglang.FACTS["spec v2"](it).values == ("off" if one else "on",)
