"""Launch lines as people type them, read as the engines' own parsers would."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import tomllib

from attnfix.compat.doctor.launch_command import LaunchError, read

LINES = tomllib.loads((Path(__file__).parent / "launch_lines.toml").read_text())["line"]


def line(text: str):
    return read(shlex.split(text))


def test_deepseek_on_b200_with_trtllm_mla():
    launch = line(
        "SGLANG_ENABLE_SPEC_V2=1 python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --dp 8 "
        "--enable-dp-attention --attention-backend trtllm_mla --kv-cache-dtype fp8_e4m3 --speculative-algorithm EAGLE "
        "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --mem-fraction-static 0.85 "
        "--trust-remote-code --host 0.0.0.0 --port 30000"
    )
    assert (launch.engine, launch.model, launch.not_understood) == ("sglang", "deepseek-ai/DeepSeek-R1", [])
    assert launch.variables == {"SGLANG_ENABLE_SPEC_V2": "1"}
    expected = {"tp-size": "8", "dp-size": "8", "attention-backend": "trtllm_mla", "kv-cache-dtype": "fp8_e4m3",
                "speculative-algorithm": "EAGLE", "speculative-eagle-topk": "1", "enable-dp-attention": "on"}  # fmt: skip
    assert expected.items() <= launch.options.items()


def test_eagle_on_h100_with_abbreviated_options():
    launch = line(
        "/usr/bin/python -m sglang.launch_server --model meta-llama/Llama-3.1-8B-Instruct --speculative-algo EAGLE3 "
        "--speculative-draft-model-path lmsys/EAGLE3 --speculative-eagle-topk=8 --disable-cuda-graph"
    )
    assert launch.model == "meta-llama/Llama-3.1-8B-Instruct" and not launch.not_understood
    expected = {"speculative-algorithm": "EAGLE3", "speculative-eagle-topk": "8", "disable-cuda-graph": "on"}
    assert expected.items() <= launch.options.items()


def test_kimi_awq_on_vllm():
    launch = line(
        "VLLM_ATTENTION_BACKEND=FLASHMLA VLLM_USE_V1=1 vllm serve moonshotai/Kimi-K2-Instruct-AWQ -tp 8 -q awq_marlin "
        "--max_model_len 131072 --no-enable-prefix-caching --enable-chunked-prefill=false --trust-remote-code"
    )
    assert (launch.engine, launch.model) == ("vllm", "moonshotai/Kimi-K2-Instruct-AWQ") and not launch.not_understood
    assert launch.variables["VLLM_ATTENTION_BACKEND"] == "FLASHMLA"
    expected = {"tensor-parallel-size": "8", "quantization": "awq_marlin", "max-model-len": "131072",
                "enable-prefix-caching": "off", "enable-chunked-prefill": "off"}  # fmt: skip
    assert expected.items() <= launch.options.items()


def test_llama_70b_with_json_options():
    launch = line(
        "vllm serve --tensor-parallel-size 4 meta-llama/Llama-3.1-70B-Instruct --speculative-config "
        """'{"method": "eagle3", "num_speculative_tokens": 3}' -ac.mla_prefill_backend=FLASHINFER """
        "--attention-config.use_cudnn_prefill true -dcp 2"
    )
    assert launch.model == "meta-llama/Llama-3.1-70B-Instruct" and not launch.not_understood
    expected = {"speculative-config.method": "eagle3", "speculative-config.num_speculative_tokens": "3",
                "attention-config.mla_prefill_backend": "FLASHINFER", "attention-config.use_cudnn_prefill": "true",
                "decode-context-parallel-size": "2"}  # fmt: skip
    assert expected.items() <= launch.options.items()


@pytest.mark.parametrize(
    "text, engine, model",
    [
        ("python -m vllm.entrypoints.openai.api_server --model a/b", "vllm", "a/b"),
        ("nohup sglang serve --model-path a/b", "sglang", "a/b"),
        ("numactl -N 0 /opt/env/bin/vllm serve a/b --port 1", "vllm", "a/b"),
        ("docker run --gpus all -e VLLM_USE_V1=1 vllm/vllm-openai:v0.20.0 --model a/b", "vllm", "a/b"),
        ("docker run lmsysorg/sglang:v0.5.9 python3 -m sglang.launch_server --model-path a/b", "sglang", "a/b"),
        ("vllm serve", "vllm", None),
    ],
)
def test_the_engine_is_found_in_the_line(text, engine, model):
    launch = line(text)
    assert (launch.engine, launch.model) == (engine, model)
    assert launch.variables == ({"VLLM_USE_V1": "1"} if "docker run --gpus" in text else {})


def test_a_whole_line_may_be_one_word():
    launch = read(["vllm serve a/b \\\n  -tp 2"])
    assert launch.model == "a/b" and launch.options["tensor-parallel-size"] == "2"


def test_what_is_not_understood_is_named_and_takes_nothing_along():
    launch = line("vllm serve a/b --made-up-flag value other --made_up=3 -tp 2 --speculative-config {broken --max-model-len")
    assert launch.not_understood == ["--made-up-flag", "--made_up", "--speculative-config {broken", "--max-model-len"]
    assert (launch.model, launch.options["tensor-parallel-size"]) == ("a/b", "2")
    assert line("vllm serve --made-up-flag value a/b").model is None, "which of the two is the model cannot be told"
    assert line("sglang serve --model-path x --chunked-prefill-size -1").options["chunked-prefill-size"] == "-1"


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["source"])
def test_a_line_as_people_launch_it(row):
    words = row["launch"]
    launch = read([words] if isinstance(words, str) else words, row.get("named"))
    assert (launch.engine, launch.model, launch.variables) == (row["engine"], row.get("model"), row.get("variables", {}))
    assert (launch.image and launch.image.name, launch.image and launch.image.release) == (row.get("image"), row.get("release"))
    assert row.get("options", {}).items() <= launch.options.items()
    assert not launch.not_understood and not launch.not_read


def config(tmp_path, text, launch="vllm serve -tp 2 --config {} --enable-prefix-caching"):
    (tmp_path / "server.yaml").write_text(text)
    return line(launch.format(tmp_path / "server.yaml"))


def test_a_config_file_is_read_and_the_line_wins(tmp_path):
    text = (
        "model: a/b\ntensor-parallel-size: 8\nenforce_eager: true\nenable-dbo: false\nno-enable-prefix-caching: true\n"
        "speculative-config: {method: mtp}\nodd: [1, 2]\n"
    )
    launch = config(tmp_path, text)
    assert launch.options == {
        "model": "a/b", "tensor-parallel-size": "2", "enforce-eager": "on", "enable-prefix-caching": "on",
        "speculative-config.method": "mtp",
    }  # fmt: skip
    assert (launch.model, launch.not_understood, launch.not_read) == ("a/b", ["--odd"], [])
    launch = config(tmp_path, text, "vllm serve c/d --config {} --speculative-config.model x")
    assert (launch.model, launch.options.get("speculative-config.method")) == ("c/d", None), (
        "the line's JSON is the whole of it"
    )
    launch = config(tmp_path, "model-path: a/b\ntp: 8\n", "sglang serve --config={}")
    assert (launch.model, launch.options["tp-size"]) == ("a/b", "8")


@pytest.mark.parametrize(
    "text, says",
    [
        ("a: [", "it is no YAML"), ("- 1", "it holds no options"), ("a: &x 1\nb: *x", "it has aliases"),
        ("config: other.yaml", "--config other.yaml of"), ("x" * (1 << 21), "larger than"),
        ("a: " + "[" * 9000, "it is no YAML"), ("a: {2020-01-01: 1}", "keys must be"),
    ],
)  # fmt: skip
def test_a_config_file_of_another_form_is_named_with_the_reason(text, says, tmp_path):
    (found,) = config(tmp_path, text).not_read
    assert found.startswith("--config ") and says in found


def test_a_config_file_that_is_not_here_is_named():
    assert line("vllm serve a/b --config serve.yaml").not_read == ["--config serve.yaml (not on this machine)"]


def test_arguments_alone_need_an_engine_and_a_program_of_another_kind_is_none():
    for engine in (None, "vllm"):
        with pytest.raises(LaunchError, match="starts no engine"):
            read(["python", "app.py", "--model", "a/b"], engine)
    with pytest.raises(LaunchError, match="--engine"):
        read(["--model", "a/b"])


@pytest.mark.parametrize(
    "text", ["image: [", "image: {a: 1}", "command: 3", "env: 3\nimage: x", "args: [[1]]", "- - - 1", "---", "[]"]
)
def test_a_container_of_another_form_is_one_sentence(text):
    with pytest.raises(LaunchError) as caught:
        read([text], "vllm")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("words", [["python", "app.py"], ["vllm", "bench"], ["vllm serve 'a"], []])
def test_a_line_that_starts_no_engine(words):
    with pytest.raises(LaunchError):
        read(words)
