"""The false-alarm figure of scripts/probe/power.py from what a GPU run has recorded."""

from __future__ import annotations

import json

import pytest

from attnfix.probe.answers import Answer, distance
from scripts.probe import power
from scripts.probe.stand_in import _listed, _moved, _normal


@pytest.fixture
def recorded(tmp_path):
    """Evidence as gpu_probe writes it: `recorded({case: figure of every prompt})`."""

    def write(cases):
        def case(figure):
            relations = [{"relation": name, "moved": [figure] * 8} for name in power.RELATIONS]
            run = {"floors": [0.01, 0.02], "relations": relations}
            return {"config": {"num_hidden_layers": 4}, "sides": {"stock": {"runs": [run]}}}

        whole = {"engine": "vllm", "release": "0.33.0", "gpu": "H", "cases": {name: case(to) for name, to in cases.items()}}
        path = tmp_path / "e2e.json"
        path.write_text(json.dumps(whole))
        return power.recordings([path])

    return write


def test_noise_has_the_size_that_was_recorded():
    logits = _normal(1) * 3
    for size in (0.001, 0.03, 0.4):
        one, other = (Answer((1,), (_listed(each),)) for each in (logits, _moved(logits, _normal(2), size)))
        assert distance(one, other) == pytest.approx(size, rel=0.2)


def test_healthy_cases_alone_are_drawn_from(recorded):
    known = recorded({"probe vllm-dense": 0.03, "probe vllm-order": 0.03, "order": 0.03})
    assert list(known) == ["vllm 0.33.0, vllm-dense, H"]


def test_a_run_says_of_recorded_figures_what_the_probe_would(recorded):
    for figure, verdict in ((0.03, "holds"), (0.5, "broken")):
        ((label, how),) = recorded({"probe vllm-dense": figure}).items()
        found = power.one((label, how, 7))
        assert found["verdict"] == verdict and found["floor"] == pytest.approx(0.02, rel=0.2)
        (row,) = power.resampled([found], {label: how})["resampled"]
        assert (row["runs"], row[verdict], row["recorded"]) == (1, 1, 56)
