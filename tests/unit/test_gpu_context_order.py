"""The GPU run's own arithmetic: steps that are shared, a checkpoint that fits, and what its report calls a failure."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import gpu_context_order as run
import tiny_deepseek


def answer(first, *others, tokens=(5, 6, 7)):
    """An answer whose most probable tokens are 0, 1, …, with these log probabilities."""
    return {"tokens": list(tokens), "logprobs": {str(token): value for token, value in enumerate((first, *others))}}


def test_the_long_prompt_comes_last_in_a_shared_step():
    sent = run.prompts()
    (long,), (same, *fresh) = sent["chunked"]["alone"], sent["chunked"]["company"]
    rest = len(long) % run.STEP
    assert long is same and rest + sum(map(len, fresh)) <= run.STEP and 512 < max(map(len, fresh)) < rest
    (prefix,), (ahead, cached) = sent["cached"]["before"], sent["cached"]["alone"]
    _, short, asked = sent["cached"]["company"]
    # One token of the prompt ahead, which decodes by then; a block of the cache holds up to 128 tokens
    assert asked is cached and cached[: len(prefix)] == prefix and len(ahead) % run.STEP == 0
    assert 512 < len(short) < len(cached) - len(prefix) and 1 + len(short) + len(cached) - len(prefix) + 128 <= run.STEP


def test_the_checkpoint_is_that_of_the_configuration(monkeypatch):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for name, value in {"HIDDEN": 64, "INNER": 32, "LAYERS": 2, "VOCABULARY": 96, "HEADS": 2}.items():
        monkeypatch.setattr(tiny_deepseek, name, value)
    with torch.device("meta"):
        model = transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**tiny_deepseek.config()))
    expected = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert {name: tuple(weight.shape) for name, weight in tiny_deepseek.weights().items()} == expected


def test_compare():
    same = answer(-1.0, -2.0)
    assert run.compare(same, same) == {"difference": 0.0, "in_common": 2, "equal_tokens": 3}
    other = answer(-1.5, -2.0, tokens=(5, 0, 7))
    assert run.compare(same, other) == {"difference": 0.5, "in_common": 2, "equal_tokens": 1}
    unlisted = {"tokens": [5], "logprobs": {"9": -4.0, "0": -1.0}}
    assert run.compare(same, unlisted) == {"difference": 2.0, "in_common": 1, "equal_tokens": 1}  # at least 4 - 2


def server(difference, records=(), shift=0.0):
    alone, company = answer(-1.0 + shift, -2.0), answer(-1.0 + shift - difference, -2.0)
    answers = {"chunked": {"alone": alone, "company": company}}
    return {"answers": answers, "compared": {"chunked": run.compare(alone, company)}, "records": list(records)}


EFFECTIVE = {"process": 1, "state": "effective", "calls": 9, "corrections": 1, "rows": 0}
IDLE = EFFECTIVE | {"state": "installed", "calls": 0, "corrections": 0}
GOOD = {"stock": server(0.4), "fixed": server(0.0, [IDLE, EFFECTIVE]), "old": server(0.01)}


def test_a_good_run_has_no_failure_and_a_table():
    assert run.failures(GOOD) == []
    shown = run.table(GOOD)
    assert "0.4" in shown and "effective, 1 corrections in 9 calls" in shown and shown.count("chunked") == 3


@pytest.mark.parametrize(
    "name, bad, word",
    [
        ("stock", server(0.0), "no difference"),
        ("stock", server(0.4, [EFFECTIVE]), "was active"),
        ("fixed", server(0.0), "should be effective"),
        ("fixed", server(0.0, [IDLE]), "should be effective"),
        ("fixed", server(0.0, [EFFECTIVE | {"corrections": 0}]), "should be effective"),
        ("fixed", server(0.2, [EFFECTIVE]), "alone and in company differ"),
        ("fixed", server(0.0, [EFFECTIVE], shift=0.3), "differs from stock"),
        ("old", server(0.2), "alone and in company differ"),
    ],
)
def test_each_check_can_fail(name, bad, word):
    (sentence,) = run.failures(GOOD | {name: bad})
    assert word in sentence


def test_records_of_this_fix_alone():
    counters = {"calls": 2, "corrections": 1, "rows": 0}
    rows = [{"fix": fix, "state": "effective", "counters": counters} for fix in (run.FIX, "vllm.other")]
    assert run.patched({"processes": [{"pid": 4, "fixes": rows}]}) == [{"process": 4, "state": "effective", **counters}]
