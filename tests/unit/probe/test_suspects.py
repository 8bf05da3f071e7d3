"""What the answer to a broken server names: which fixes its release and its flags may need."""

import pytest

from attnfix.cli.probe import _suspects
from attnfix.probe.client import Facts
from scripts.serve import tiny_nemotron

CACHE = "vllm.mamba-prefix-cache"


@pytest.mark.parametrize(("told", "suspected"), [("True", True), (True, True), ("False", False), (False, False), (None, True)])
def test_a_switch_is_read_as_any_page_writes_it(told, suspected):
    """vLLM's metrics page has "True" as a string."""
    facts = Facts("vllm", "0.25.1", "tiny", flags={"enable_prefix_caching": told})
    assert (CACHE in {each["fix"] for each in _suspects(facts, tiny_nemotron.config(), None)}) == suspected
