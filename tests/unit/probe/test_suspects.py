"""What the answer to a broken server names: which fixes its release and its flags may need."""

import pytest

from attnfix.cli.probe import _suspects
from attnfix.probe.client import Facts
from tests.gpu.serving import models

CACHE = "vllm.mamba-prefix-cache"


@pytest.mark.parametrize(("told", "suspected"), [("True", True), (True, True), ("False", False), (False, False), (None, True)])
def test_a_switch_is_read_as_any_page_writes_it(told, suspected):
    """vLLM's metrics page has "True" as a string."""
    facts = Facts("vllm", "0.25.1", "tiny", flags={"enable_prefix_caching": told})
    assert (CACHE in {each["fix"] for each in _suspects(facts, models.config("nemotron-h"), None)}) == suspected


def test_what_shows_itself_in_the_broken_relations_comes_first():
    facts = Facts("vllm", "0.25.1", "tiny", flags={"enable_prefix_caching": "True", "mamba_cache_mode": "align"})
    named = [each["fix"] for each in _suspects(facts, models.config("nemotron-h"), None, ["cached prefix", "next turn"])]
    beside = [each["fix"] for each in _suspects(facts, models.config("nemotron-h"), None, ["in company"])]
    assert sorted(named) == sorted(beside)
    assert named.index(CACHE) < named.index("vllm.padded-one-token-prompt")
    assert beside.index("vllm.padded-one-token-prompt") < beside.index(CACHE)


def test_relations_have_the_names_that_the_probe_knows():
    from attnfix.cli.probe import _SYMPTOMS, RELATIONS

    assert set(_SYMPTOMS) - {"context limit"} == set(RELATIONS) - {"again"}
