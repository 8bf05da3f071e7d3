"""The tables of the engines' options, and what of them decides a fact."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from packaging.version import Version

from attnfix.compat.doctor import engine_options, gpus
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.diagnosis import SHARED
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES

ROOT = Path(__file__).parents[3]
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama"}


def fact(name, launch, release, engine="vllm"):
    line = read(shlex.split(f"{engine} serve m {launch}"), release=release)
    assert not line.not_understood
    return SHARED[engine][name](Deployment(engine, Version(release), LLAMA, gpus.named("h100"), line))


@pytest.mark.parametrize("engine", SHARED)
def test_a_table_has_every_release_that_is_judged(engine):
    judged = [release for release, _ in ledger.load(next(fix for fix in FIXES if fix.engine == engine)).releases()]
    path = engine_options.path_of(engine)
    assert list(engine_options.releases(engine)) == judged and path.stat().st_size < 150_000


@pytest.mark.parametrize("engine", SHARED)
def test_every_option_that_a_fact_asks_for_is_one_of_the_engine(engine):
    known = {option.name for option in engine_options.options(engine)}
    files = [ROOT / f"compat/doctor/{engine}.py", *ROOT.glob(f"patches/{engine}/*/facts.py")]
    asked = {
        name.partition(".")[0]
        for path in files
        for name in re.findall(r"""\b(?:option|number|given|absent)\(\s*"([\w.-]+)\"""", path.read_text())
    }
    assert len(asked) > 10 and asked <= known
    renamed = {name.partition(".")[0] for name in engine_options.RENAMED[engine].values()}
    assert renamed <= known


@pytest.mark.parametrize(
    "engine, release, launch, expected",
    [
        ("vllm", "0.25.1", "--enable-prompt-tokens-details --ssl-keyfile k --enable-lora", {"ssl-keyfile": "k"}),
        ("vllm", "0.25.1", "--lora-modules a=b c=d", {"lora-modules": "a=b c=d"}),
        ("vllm", "0.25.1", "-O3", {"optimization-level": "3"}),
        ("vllm", "0.10.0", "-O3", {"compilation-config": "3"}),
        ("vllm", "0.25.1", "--spec-method ngram --spec-tokens 2", {"speculative-config.method": "ngram"}),
        ("vllm", "0.25.1", "--no-enable-log-requests --tensor 2", {"tensor-parallel-size": "2"}),
        ("sglang", "0.5.9", "--ep 8 --cuda-graph-bs 1 2 4 --enable-torch-compile", {"ep-size": "8", "cuda-graph-bs": "1 2 4"}),
    ],
)  # fmt: skip
def test_a_release_reads_its_own_options(engine, release, launch, expected):
    line = read(shlex.split(f"{engine} serve m {launch}"), release=release)
    assert not line.not_understood and expected.items() <= line.options.items() and line.model == "m"


@pytest.mark.parametrize("engine, front, reaching", [
    ("vllm", "port api-key chat-template otlp-traces-endpoint max-log-len tokenizer", "lora-modules gdn-prefill-backend dtype"),
    ("sglang", "port log-level enable-metrics tool-call-parser served-model-name", "forward-hooks page-size tp-size"),
])  # fmt: skip
def test_options_of_the_server_around_the_model_are_told_apart(engine, front, reaching):
    found, known = engine_options.in_front(engine), {option.name for option in engine_options.options(engine)}
    assert set(front.split()) <= found <= known and found.isdisjoint(reaching.split()) and known.issuperset(reaching.split())


def test_an_option_of_another_release_is_not_understood():
    assert read(["vllm", "serve", "m", "--attention-backend", "X"], release="0.10.0").not_understood == ["--attention-backend"]
    assert not read(["vllm", "serve", "m", "--attention-backend", "X"]).not_understood, "some release has it"
    assert read(["vllm", "serve", "m", "--max-num", "3"], release="0.25.1").not_understood == ["--max-num"], "two begin so"
    assert read(["vllm", "serve", "m", "--port", "--host", "x"], release="0.25.1").not_understood == ["--port"]


def test_an_option_that_no_choice_reads_decides_nothing():
    for launch in ("--enable-lora --stream-interval 4", "--enable-prompt-tokens-details --ssl-keyfile k", "--max-logprobs 3"):
        assert fact("model runner", launch, "0.25.1").values == ("V2",)
        assert fact("full CUDA graphs", launch, "0.25.1").values == ("on",)


def test_graph_choices_of_sglang_are_found_in_every_form():
    """A flag, a field of a configuration of graphs (0.5.14), a new configuration (0.5.19)."""
    releases = list(engine_options.releases("sglang"))
    for release in releases[releases.index("0.5.11") :]:
        read = engine_options.read_by("sglang", release, "graph mode")
        assert read >= {"dllm-algorithm", "disaggregation-mode", "enable-mis", "deepep-mode"}, release


def test_an_option_that_a_choice_reads_opens_that_fact_alone():
    found = fact("full CUDA graphs", "--pooler-config.pooling_type CLS", "0.25.1")
    assert found.values == () and "--pooler-config.pooling_type may choose" in found.why
    assert fact("model runner", "--pooler-config.pooling_type CLS", "0.25.1").values == ("V2",)
    assert len(fact("model runner", "--hf-overrides.architectures+ XForCausalLM", "0.25.1").values) == 2
    assert fact("model runner", "--hf-overrides.rope_theta 1e6", "0.25.1").values == ("V2",)
    graphs = fact("CUDA graphs", "--deepep-mode normal", "0.5.9", "sglang")
    assert graphs.values == () and "--deepep-mode" in graphs.why
    assert fact("CUDA graphs", "--deepep-mode auto", "0.5.9", "sglang").values == ("on",), "its default"
    assert fact("prefill backend", "--deepep-mode normal", "0.5.9", "sglang").values == ("fa3",)


@pytest.mark.parametrize("overrides, found", [
    ('{"architectures": ["MllamaForConditionalGeneration"]}', ("on",)), ("{}", ("off",)), ("{", ()), ("$X", ()), ("null", ()),
])  # fmt: skip
def test_overrides_of_config_json_count_in_sglang(overrides, found):
    assert fact("encoder-decoder", f"--json-model-override-args '{overrides}'", "0.5.9", "sglang").values == found
