"""Every fix's condition in both directions: deployments that hit the bug, do not, or leave it open, each with why."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest
from packaging.version import Version

from attnfix.cli import doctor
from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE, Above, AllOf, AnyOf, Fact, Given, Is, known, unknown
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.fix import CRASH, SLOWER, WRONG_OUTPUT, Upstream
from attnfix.compat.gate import ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import BY_ID, FIXES, facts_of_fixes
from tests.fixes.rows import DEPLOYMENTS, DEVELOPMENT, WAYS
from tests.support.deployments import EXTEND_BY_DECODE, LONG_CHAIN, MODELS, ON_CUTEDSL, R1, SGL


def facts_of(deployment):
    return diagnosis.facts(deployment, facts_of_fixes(deployment.engine))


def answer(fix, release, model, gpu, launch, code=None):
    deployment = Deployment(
        BY_ID[fix].engine,
        release=Version(release) if release else None,
        config=MODELS[model] if model else None,
        gpu=gpus.named(gpu) if gpu else None,
        launch=read(shlex.split(launch)) if launch else None,
    )
    code = code or ledger.load(BY_ID[fix]).verdict(release)
    return diagnosis.answer(BY_ID[fix], code, release, facts_of(deployment))


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", DEPLOYMENTS)
def test_a_published_release(fix, release, model, gpu, launch, verdict, says):
    assert ledger.load(BY_ID[fix]).verdict(release) == ledger.AFFECTED or fix == "sglang.zero-kv-rows", "else the code decides"
    found = answer(fix, release, model, gpu, launch)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)


@pytest.mark.parametrize("fix, release, model, gpu, launch, verdict, says", DEVELOPMENT)
def test_development_code(fix, release, model, gpu, launch, verdict, says):
    found = answer(fix, release, model, gpu, launch, ledger.AFFECTED)
    assert found.verdict == verdict, found.reasons
    assert says in " / ".join(found.reasons)
    assert answer(fix, release, model, gpu, launch).verdict == NOT_HIT, "no release has it"


@pytest.mark.parametrize(
    "fix, release, model, gpu, launch, verdict",
    [("sglang.draft-row-spill", None, "Llama", "h100", LONG_CHAIN, POSSIBLE),
     ("sglang.lse-log-base", None, "R1", "h100", EXTEND_BY_DECODE, POSSIBLE),
     ("sglang.lse-log-base", "0.5.14rc1", "R1", "h100", EXTEND_BY_DECODE, HIT),
     ("sglang.lse-log-base", "0.5.13rc1", "R1", "b200", ON_CUTEDSL, HIT),
     ("sglang.lse-log-base", "0.5.13.dev3", "R1", "b200", ON_CUTEDSL, HIT),
     ("sglang.lse-log-base", "0.0.0.dev0", "R1", "b200", ON_CUTEDSL, POSSIBLE)],
)  # fmt: skip
def test_an_unknown_release_has_no_rule_and_a_candidate_that_of_its_release(fix, release, model, gpu, launch, verdict):
    assert answer(fix, release, model, gpu, launch, ledger.AFFECTED).verdict == verdict
    later = Deployment(BY_ID[fix].engine, config=MODELS[model], gpu=gpus.named(gpu), launch=read(shlex.split(launch)))
    later = replace(later, release=Version(release) if release else None)
    assert diagnosis.answer(BY_ID[fix], ledger.AFFECTED, "", facts_of(later)).verdict == verdict


@pytest.mark.parametrize("fix", BY_ID)
def test_every_fix_is_tried_in_both_directions(fix):
    verdicts = {case[5] for case in (*DEPLOYMENTS, *DEVELOPMENT) if case[0] == fix}
    assert {HIT, NOT_HIT} <= verdicts
    engine = BY_ID[fix].engine
    assert BY_ID[fix].hits.names <= {*diagnosis.SHARED[engine], *facts_of_fixes(engine)}
    assert BY_ID[fix].harm in (WRONG_OUTPUT, CRASH, SLOWER)


@pytest.mark.parametrize("fix", FIXES, ids=lambda fix: fix.id)
def test_nothing_known_is_never_an_answer(fix):
    """No release, model, GPU or launch: every bug that the code has is possible."""
    deployment = Deployment(fix.engine)
    assert diagnosis.answer(fix, ledger.AFFECTED, "", facts_of(deployment)).verdict == POSSIBLE
    assert diagnosis.answer(fix, ledger.FIXED, "", facts_of(deployment)).verdict == NOT_HIT


@pytest.mark.parametrize("fix, way", WAYS)
def test_each_fact_decides(fix, way):
    """With all of them the bug is hit; one wrong value, and it is not; one unknown, and it is possible."""
    asks = BY_ID[fix].hits
    # What only the other way to the bug asks for has a value that never fulfils it
    base = {name: known(0) for name in asks.names} | {name: known(values[0]) for name, (values, _) in way.items()}
    assert set(way) <= asks.names
    for name, (values, wrong) in way.items():
        for value in values:
            assert asks({**base, name: known(value)}.__getitem__).verdict == HIT, (name, value)
        assert asks({**base, name: known(wrong)}.__getitem__).verdict == NOT_HIT, (name, wrong)
        assert asks({**base, name: unknown("")}.__getitem__).verdict == POSSIBLE, name


@pytest.mark.parametrize("fix", BY_ID)
def test_no_fact_is_left_out(fix):
    ways = [way for name, way in WAYS if name == fix]
    assert set().union(*ways) == BY_ID[fix].hits.names


def test_code_that_nobody_judged_is_at_most_possible():
    arguments = ("sglang.zero-kv-rows", "0.5.9", "R1", "b200", SGL)
    assert answer(*arguments, code=ledger.UNKNOWN).verdict == POSSIBLE
    assert answer("sglang.zero-kv-rows", "0.5.9", "R1", "h100", SGL, code=ledger.UNKNOWN).verdict == NOT_HIT


@pytest.mark.parametrize("odd", [[1], {"quant_method": "compressed-tensors", "config_groups": 1}])
def test_a_config_of_an_unheard_of_form_leaves_the_fact_unknown(odd):
    config = {**R1, "quantization_config": odd}
    deployment = Deployment("vllm", Version("0.25.1"), config, gpus.named("h100"), read(["vllm", "serve", "m"]))
    found = diagnosis.answer(BY_ID["vllm.quantized-mla-context"], ledger.AFFECTED, "", facts_of(deployment))
    assert found.verdict == POSSIBLE and "config.json has a form that is not read" in found.reasons[0]


def test_three_valued_logic():
    facts = {"a": known("x", "said"), "b": Fact(("x", "y")), "c": unknown("ask"), "n": known(3)}.__getitem__
    assert [Is("a", "x")(facts).verdict, Is("a", "y")(facts).verdict, Is("c", "x")(facts).verdict] == [HIT, NOT_HIT, POSSIBLE]
    assert Is("b", "x", "y")(facts).verdict == HIT and Is("b", "x")(facts).verdict == POSSIBLE
    assert Is("b", "z")(facts).verdict == NOT_HIT
    assert Above("n", 2)(facts).verdict == HIT and Above("n", 3)(facts).verdict == NOT_HIT
    assert AllOf(Is("c", "x"), Is("a", "y"))(facts).verdict == NOT_HIT, "a missing fact matters only where it decides"
    assert AllOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("c: unknown (ask)",)
    assert AnyOf(Is("c", "x"), Is("a", "x"))(facts).reasons == ("a: x (said)",)
    assert AnyOf(Is("c", "x"), Is("a", "y"))(facts).verdict == POSSIBLE
    assert AnyOf(Is("b", "z"), Is("a", "y"))(facts).verdict == NOT_HIT


@pytest.mark.parametrize(
    "name, capability", [("H100", 90), ("NVIDIA H200", 90), ("GB200", 100), ("RTX 5090", 120), ("sm_103", 103), ("sm90a", 90)]
)
def test_gpus_are_known_by_the_names_that_people_use(name, capability):
    assert gpus.named(name).capability == capability


def test_an_unknown_gpu_is_none():
    assert gpus.named("h1000") is None and gpus.named("") is None


def test_every_option_that_a_fact_reads_counts_as_read(monkeypatch):
    """In any deployment of the corpus: a name that a fact puts together would be missed."""
    asked: dict[str, set[str]] = {"sglang": set(), "vllm": set()}
    for how in ("option", "given", "absent"):
        real = getattr(Deployment, how)

        def recording(it, *names, real=real, **more):
            asked[it.engine].update(names[:1] if real.__name__ == "option" else names)
            return real(it, *names, **more)

        monkeypatch.setattr(Deployment, how, recording)
    for case in (*DEPLOYMENTS, *DEVELOPMENT):
        answer(*case[:5], ledger.AFFECTED)
    for engine, names in asked.items():
        assert len(names) > 20
        assert {name.partition(".")[0] for name in names} <= diagnosis.options_read(engine, facts_of_fixes(engine), ())


def test_an_option_that_no_fact_reads_does_not_count_as_read():
    read_by_vllm = diagnosis.options_read("vllm", facts_of_fixes("vllm"), ())
    assert "enforce-eager" in read_by_vllm and read_by_vllm.isdisjoint({"enable-eplb", "host", "page-size"})


def test_of_code_that_is_no_release_a_known_bug_is_told_by_version_only():
    bug = KnownBug(
        id="vllm.x", title="x", symptom="x.", symptoms=(), releases=(">=0.20.0,<=0.33.0",), code=("vllm.x:x",), avoid="x.",
        upstream=Upstream("vllm-project/vllm", issue=1), hits=Given("--x"),
    )  # fmt: skip
    launch = read(["vllm", "serve", "m"], "vllm")
    launch.options["x"] = "1"

    def row(release, exact):
        it = Deployment("vllm", launch=launch, release=release and Version(release))
        return doctor._known_row(bug, it, diagnosis.facts(it, {}), exact)

    assert (row("0.25.1", True)["verdict"], row("0.25.1", True)["reasons"]) == (HIT, ["--x: 1 (--x)"])
    assert row("0.25.1", False)["reasons"][0] == "release: by version only, since the code is that of no release"
    assert row("0.19.1", False)["verdict"] == NOT_HIT
    assert [row(release, True)["verdict"] for release in ("0.34.0", None)] == [POSSIBLE, POSSIBLE]
