"""`attnfix doctor` as typed, and what it knows of the engines held against the source of real releases."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.integration.test_command_line import attnfix
from tests.support import environments

R1 = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
SERVE = "python3 -m sglang.launch_server --model-path r1 --tp 8 --attention-backend trtllm_mla"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("r1")
    (folder / "config.json").write_text(json.dumps(R1))
    return folder


def doctor(*arguments, launch: str | None = None, **environment):
    done = attnfix("doctor", "--json", *arguments, *(["--", *launch.split()] if launch else []), **environment)
    assert done.returncode in (0, 1), done.stderr
    data = json.loads(done.stdout)
    return done.returncode, {row["fix"]: row for row in data["fixes"]}, data


def test_a_hit_that_attnfix_corrects_is_exit_0_and_one_that_it_does_not_is_1(model):
    fixed = [str(model), "--engine", "sglang==0.5.9", "--gpu", "b200"]
    code, rows, data = doctor(*fixed, launch=SERVE + " --made-up 3")
    assert (code, data["not_understood"], data["gpu"]) == (0, ["--made-up"], "b200, sm_100")
    assert rows["sglang.zero-kv-rows"]["verdict"] == "hit" and rows["sglang.zero-kv-rows"]["harm"] == "wrong output"
    assert rows["sglang.zero-kv-rows"]["corrected"] is True
    assert rows["sglang.draft-kv-indices"]["verdict"] == "not hit"
    others = "ATTNFIX_ONLY=sglang.lse-log-base", "ATTNFIX_FIXSET=another"
    for switched_off in ("ATTNFIX=0", "ATTNFIX_SGLANG_ZERO_KV_ROWS=0", "SGLANG_PLUGINS=other", *others):
        code, rows, _ = doctor(*fixed, launch=f"{switched_off} {SERVE}")
        assert code == 1 and rows["sglang.zero-kv-rows"]["corrected"] is False, switched_off
        name, _, value = switched_off.partition("=")
        assert doctor(*fixed, launch=SERVE, **{name: value})[0] == 1, "the launch inherits the environment"


def test_the_restriction_of_a_deployment_is_told(model):
    fixed, fix = [str(model), "--engine", "sglang==0.5.9", "--gpu", "b200"], "sglang.zero-kv-rows"
    for named, says in ((fix, "corrects it (named in ATTNFIX_ONLY)"), ("sglang.lse-log-base", "off: not in ATTNFIX_ONLY")):
        assert doctor(*fixed, launch=f"ATTNFIX_ONLY={named} {SERVE}")[1][fix]["attnfix"] == says


def test_a_deployment_that_observes_corrects_nothing(model):
    fixed = [str(model), "--engine", "sglang==0.5.9", "--gpu", "b200"]
    code, rows, _ = doctor(*fixed, launch=f"ATTNFIX=observe {SERVE}")
    hit = rows["sglang.zero-kv-rows"]
    assert code == 1 and hit["attnfix"] == "observes only (ATTNFIX=observe), and not this bug" and not hit["corrected"]
    assert not any(row["corrected"] for row in rows.values())
    code, rows, _ = doctor(*fixed, launch=f"ATTNFIX=observe ATTNFIX_STRICT=1 {SERVE}")
    assert rows["sglang.zero-kv-rows"]["attnfix"] == "off: ATTNFIX_STRICT=1 refuses ATTNFIX=observe"


def test_the_exit_code_is_about_wrong_output_and_crashes(model):
    """A bug that only makes steps slower is named, and no reason to stop a deployment."""
    fixed = [str(model), "--engine", "vllm==0.16.0", "--gpu", "b200"]
    code, rows, _ = doctor(*fixed, launch="vllm serve r1")
    row = rows["vllm.skip-context-zero-fill"]
    assert (code, row["verdict"], row["harm"], row["corrected"]) == (0, "hit", "slower", False) and row["switch"] in row[
        "attnfix"
    ]
    asked = "ATTNFIX_VLLM_SKIP_CONTEXT_ZERO_FILL=1 ATTNFIX_VLLM_PREFILL_CONTEXT_MERGE=1 vllm serve r1"
    code, rows, _ = doctor(*fixed, launch=asked)
    assert code == 0 and rows["vllm.skip-context-zero-fill"]["corrected"] is True
    code, rows, _ = doctor(str(model), "--engine", "vllm==0.33.0", "--gpu", "b200", launch="vllm serve r1")
    assert code == 0 and {row["verdict"] for row in rows.values()} == {"not hit"}


def test_the_release_of_an_image_counts_unless_engine_names_another(model):
    launch = "docker run registry.corp:5000/vllm/vllm-openai:v0.19.1-cu130 r1"
    fixed = [str(model), "--gpu", "b200"]
    image = "image registry.corp:5000/vllm/vllm-openai:v0.19.1-cu130"
    for arguments, release, source in (
        ([], "0.19.1", image),
        (["--engine", "vllm==0.19.1"], "0.19.1", "--engine"),
        (["--engine", "vllm==0.25.1"], "0.25.1", f"--engine, not {image}"),
    ):
        data = doctor(*fixed, *arguments, launch=launch)[2]
        assert (data["release"], data["release_from"]) == (release, source)


def test_an_unknown_option_is_named_where_it_may_decide(model):
    """Model Runner V2 of vLLM 0.25.1 depends on options that attnfix has not read."""
    arguments = "doctor", str(model), "--engine", "vllm==0.25.1", "--gpu", "h200", "--", "vllm", "serve", "r1", "--unheard-of"
    text = attnfix(*arguments).stdout
    assert "unless --unheard-of needs V2" in text and "Unknown options: --unheard-of. If one may matter" in text
    assert "vllm 0.25.1 would refuse to start." in text


def test_the_table_says_verdict_reason_and_what_is_done(model):
    arguments = "doctor", str(model), "--engine", "sglang==0.5.9", "--gpu", "b200", "--", *SERVE.split(), "--odd"
    done = attnfix(*arguments)
    assert done.returncode == 0 and not done.stderr
    text = done.stdout
    assert "sglang 0.5.9; b200, sm_100, DeepseekV3ForCausalLM" in text and "corrects it (on by default)" in text
    assert "prefill backend: trtllm_mla (--attention-backend)" in text
    assert "code: not affected" not in text and "cost of the correction" in text
    counts = r"\d+ bugs? hit(, \d+ possible)?: [1-9]\d* corrected by attnfix, \d+ with a way around, \d+ with neither \("
    assert re.match(counts, text), "the first line"
    assert "Unknown options: --odd. If" in text and "Next: `attnfix explain BUG`" in text and "Not read" not in text
    text = attnfix(*arguments, "--config", "a.yaml").stdout
    assert "Not read: --config a.yaml" in text
    assert "--disable-radix-cache may be set in --config a.yaml, which is not read" in text


def test_the_counts_are_those_of_the_rows(model):
    fixed = [str(model), "--engine", "sglang==0.5.9", "--gpu", "b200"]
    for variables in ("", "ATTNFIX=0 "):
        _, rows, data = doctor(*fixed, launch=variables + SERVE)
        applying = [row for row in rows.values() if row["verdict"] != "not hit"]
        assert data["corrected"] == sum(row["corrected"] for row in applying)
        assert data["corrected"] + data["way_around"] + data["neither"] == len(applying) > 1
        assert (data["corrected"] == 0) is bool(variables) and (data["way_around"] > 0 or not variables)
    text = attnfix("doctor", *fixed, "--", *f"ATTNFIX=0 {SERVE}".split()).stdout
    assert f": 0 corrected by attnfix, {data['way_around']} with a way around, {data['neither']} with neither" in text
    assert "cost of the correction" not in text


def test_options_that_nothing_of_ours_covers_are_named(model):
    launch = "vllm", "serve", "r1", "--enforce-eager"
    fixed = "doctor", str(model), "--engine", "vllm==0.33.0", "--gpu", "h200", "--", *launch
    text = attnfix(*fixed, "--enable-eplb", "--max-logprobs", "3").stdout
    assert "No known bug applies" in text.splitlines()[0]
    assert "attnfix knows no bug around: --enable-eplb, --max-logprobs; that is no proof that there is none." in text
    assert "knows no bug around" not in attnfix(*fixed).stdout
    front = "--host 0.0.0.0 --port 80 --api-key k --served-model-name r1 --disable-log-stats --tool-call-parser hermes"
    assert "knows no bug around" not in attnfix(*fixed, *front.split()).stdout


def test_where_no_fix_applies_bugs_that_one_fact_rules_out_are_named(model):
    fixed = "doctor", str(model), "--engine", "vllm==0.25.1", "--gpu", "h200", "--"
    served = "vllm", "serve", "r1", "--runner", "generate"
    text = attnfix(*fixed, *served).stdout
    assert "Is each of these so on your server?" in text
    assert "    vllm.mla-context-order: model runner: V1 (default of vLLM 0.25.1" in text
    assert "    vllm.both-empty-merge" not in text, "code that is right, and another maker's GPU"
    assert "    vllm.dcp-page-counts" not in text, "two facts"
    hit = attnfix(*fixed, "VLLM_USE_V2_MODEL_RUNNER=1", *served).stdout
    assert "vllm.mla-context-order" in hit and "rules out" not in hit


def test_the_model_of_the_launch_is_read_where_it_lies_here(model):
    _, _, data = doctor("--engine", "sglang==0.5.9", "--gpu", "b200", launch=SERVE.replace("r1", str(model)))
    assert data["architecture"] == "DeepseekV3ForCausalLM"
    assert doctor("--engine", "sglang==0.5.9", "--gpu", "b200", launch=SERVE)[2]["architecture"] is None


def test_the_config_that_the_launch_names_comes_before_the_models(model, tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    asked = "--engine", "vllm==0.25.1", "--gpu", "h100"
    for other, architecture in ((tmp_path, "LlamaForCausalLM"), (tmp_path / "none", None)):
        launch = f"vllm serve {model} --hf-config-path {other}"
        for arguments in ((str(model), *asked), asked):
            assert doctor(*arguments, launch=launch)[2]["architecture"] == architecture
    rows = doctor(str(model), *asked, launch=launch)[1]
    needs = "attention: unknown (needs the config.json of --hf-config-path, which is not on this machine)"
    assert needs in rows["vllm.mla-context-order"]["reasons"] and rows["vllm.mla-context-order"]["verdict"] == "possible"


def test_a_model_that_was_fetched_from_the_hub_is_read_by_its_name(model, tmp_path):
    """In the hub's cache as `hf download` lays it out; nothing is fetched."""
    kept = tmp_path / "hub" / "models--deepseek-ai--DeepSeek-R1"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0123abc")
    (kept / "snapshots").mkdir()
    shutil.copytree(model, kept / "snapshots" / "0123abc")
    asked = "--engine", "sglang==0.5.9", "--gpu", "b200"
    where = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    hub = "deepseek-ai/DeepSeek-R1"
    assert doctor(hub, *asked, **where)[2]["architecture"] == "DeepseekV3ForCausalLM"
    assert doctor(*asked, launch=f"sglang serve --model-path {hub}", **where)[2]["architecture"] == "DeepseekV3ForCausalLM"
    assert doctor(*asked, launch="sglang serve --model-path deepseek-ai/other", **where)[2]["architecture"] is None


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--engine", "sglang==0.5.9", "--gpu", "h10"], "is no GPU attnfix knows; did you mean h100?"),
        (["--engine", "sglang==0.5.9", "no/such/model"], "no model that was fetched to this machine"),
        (
            ["--engine", "sglang==0.5.9", "no-such/model"],
            "curl -LO https://huggingface.co/no-such/model/resolve/main/config.json",
        ),
        (["--", "docker", "run", "vllm/vllm-openai:latest", "x"], "image vllm/vllm-openai:latest does not say its release"),
        (["--engine", "sglang==0.5.9", "--", "vllm", "serve", "x"], "--engine names sglang, but the launch"),
        (["--engine", "sglang==0.5.9", "--", "python", "app.py"], "starts no engine"),
        (["--engine", "sglnag==0.5.9"], "did you mean sglang?"),
        (["--", "vllm", "serve", "x"], "no vllm is installed here"),
        ([], "no engine is installed here; name one, as in --engine sglang==0."),
    ],
)
def test_bad_input_gets_one_clear_sentence(arguments, says):
    done = attnfix("doctor", *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("attnfix: ") and says in line and not done.stdout


def test_a_release_that_nobody_judged_is_named_with_the_nearest():
    assert "sglang 0.5.99 was never judged; nearest" in attnfix("doctor", "--engine", "sglang==0.5.99").stderr


def test_nvidia_smi_tells_the_gpu_where_it_is_there(model, tmp_path):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA H200, 9.0'\n")
    program.chmod(0o755)
    where = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert doctor(str(model), "--engine", "sglang==0.5.9", launch="sglang serve", **where)[2]["gpu"] == "NVIDIA H200, sm_90"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'; exit 9\n")
    assert doctor(str(model), "--engine", "sglang==0.5.9", launch="sglang serve", **where)[2]["gpu"] is None


def test_no_engine_and_no_torch_is_imported(model):
    command = ["doctor", str(model), "--engine", "vllm==0.25.1", "--gpu", "h100", "--", "vllm", "serve", "x"]
    code = f"import sys; from attnfix.cli import main; main({command!r}); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "'attnfix.compat.doctor.diagnosis'" in done.stderr
    assert not any(f"'{name}'" in done.stderr for name in ("torch", "vllm", "sglang", "requests"))


def test_the_installed_release_is_judged_by_its_code(engine_python, model):
    environment = engine_python("sglang", "0.5.10.post1")
    arguments = ("-m", "attnfix", "doctor", "--json", str(model), "--gpu", "b200", "--", *SERVE.split())
    data = json.loads(environment.run(*arguments).stdout)
    rows = {row["fix"]: row for row in data["fixes"]}
    assert data["release"] == "0.5.10.post1" and rows["sglang.zero-kv-rows"]["verdict"] == "hit"
    path = environments.replaceable(environment, "sglang/srt/layers/attention/trtllm_mla_backend.py")
    text = path.read_text()
    path.write_text(text.replace("is_target_verify()", "is_target_verify_mended()"))
    try:
        done = environment.run(*arguments, check=False)
        row = next(row for row in json.loads(done.stdout)["fixes"] if row["fix"] == "sglang.zero-kv-rows")
        assert (done.returncode, row["verdict"], row["attnfix"]) == (1, "possible", "leaves unknown code alone")
    finally:
        path.write_text(text)


def test_a_bug_without_a_fix_is_named_with_what_avoids_it(model):
    """Its release is told by number alone, and its condition is over the same facts."""
    line = "VLLM_USE_SIMPLE_KV_OFFLOAD=1 vllm serve r1 --kv-offloading-size 8"
    code, _, data = doctor(str(model), "--engine", "vllm==0.20.2", "--gpu", "h100", launch=line)
    (row,) = (row for row in data["known"] if row["verdict"] == "hit")
    assert (code, row["bug"], data["way_around"] > 0) == (1, "vllm.simple-offload-store-race", True)
    told = attnfix("doctor", str(model), "--engine", "vllm==0.20.2", "--gpu", "h100", "--", *line.split()).stdout
    assert "has no fix: see the way around" in told and row["avoid"] in told.replace("\n", " ")
    for engine, launch in (("vllm==0.24.0", line), ("vllm==0.20.2", "vllm serve r1 --kv-offloading-size 8")):
        code, _, data = doctor(str(model), "--engine", engine, "--gpu", "h100", launch=launch)
        assert {row["verdict"] for row in data["known"] if row["bug"] == "vllm.simple-offload-store-race"} == {"not hit"}
