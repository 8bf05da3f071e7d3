"""The one place where a file of others is opened, and who goes through it: doctor, report, run, an index in a folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from attnfix import cli
from attnfix.cli import bug_report, run
from attnfix.compat import untrusted
from attnfix.compat.doctor.launch_command import read
from attnfix.compat.releases import index, pip_config, pip_session
from tests.unit.status.test_foreign_records import deadline  # noqa: F401  # a fixture: no test here may hang

LAUNCH = ["--", "python3", "-m", "sglang.launch_server", "--model-path"]
#: With which a bug is possible whose fix is off by default
DRAFTS = ["--speculative-algorithm", "EAGLE", "--speculative-num-steps", "3", "--speculative-eagle-topk", "1"]


@pytest.mark.parametrize("text", ["plain → text, µs", "", "naïve 模型"])
def test_a_plain_line_is_itself(text):
    assert untrusted.line(text) is text


def test_everything_that_is_not_to_look_at_is_escaped():
    assert untrusted.line("a\x1b[2J\n\t\r\x7f\x9b\u202e\ud800z") == "a\\x1b[2J\\n\\t\\r\\x7f\\x9b\\u202e\\ud800z"


def test_a_file_that_grows_beyond_the_limit_is_not_read_to_its_end(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    with untrusted.opened(path, 10) as descriptor:
        with path.open("ab") as file:
            file.truncate(1 << 40)
        with pytest.raises(OSError, match="larger than 10 bytes"):
            untrusted.content(descriptor, 10)
    with pytest.raises(OSError, match="larger than 10 bytes"):
        untrusted.read(path, 10)


def test_a_descriptor_is_closed_and_not_inherited(tmp_path):
    path = tmp_path / "file"
    path.touch()
    with untrusted.opened(path) as descriptor:
        assert not os.get_inheritable(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize("depth, fits", [(40, True), (60, False), (900, False), (100_000, False)])
def test_json_is_taken_as_deep_as_anything_is_meant(depth, fits):
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        text = opening * depth + "1" + closing * depth
        if fits:
            assert untrusted.parsed(text) is not None
        else:
            with pytest.raises(ValueError, match="too deep"):
                untrusted.parsed(text)


# Readers


def config(tmp_path, kind):
    path = tmp_path / "config.json"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "zero":
        path.symlink_to("/dev/zero")
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(1 << 40)
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    else:
        path.write_text({"nested list": "[" * 200_000, "nested": '{"a":' * 200_000, "number": "1" * 5000}[kind])
    return path


@pytest.mark.parametrize("kind", ["fifo", "zero", "huge", "binary", "nested list", "nested", "number"])
@pytest.mark.parametrize("named", ["file", "folder", "launch"])
def test_doctor_with_a_config_that_is_none_is_one_sentence(tmp_path, kind, named, capsys):
    """Of a launch whose model is no config nothing is known. Some bug is possible then whose fix is off: exit code 1."""
    path = config(tmp_path, kind)
    model = {"file": [str(path)], "folder": [str(tmp_path)], "launch": []}[named]
    launch = [*LAUNCH, str(tmp_path), *DRAFTS] if named == "launch" else []
    code = cli.main(["doctor", *model, "--engine", "sglang==0.5.9", "--gpu", "b200", *launch])
    said = capsys.readouterr()
    if named != "launch" or kind not in ("fifo", "zero"):
        assert code == 2 and said.err.startswith("attnfix: ") and said.err.count("\n") == 1 and not said.out, said
        assert "cannot be read as a model's config.json" in said.err
    else:
        assert code == 1 and "sglang.zero-kv-rows" in said.out and "needs the model's config.json" in said.out and not said.err


@pytest.mark.parametrize(
    "text",
    ['{"architectures": ["[/red]\\u001b[2J\\nall is well"]}', '{"architectures": [1]}', '{"architectures": {"a": 1}}',
     '{"model_type": "[/red]\\u001b[2J", "kv_lora_rank": 512}', '{"text_config": [], "kv_lora_rank": "x"}',
     '{"quantization_config": "\\u001b", "kv_lora_rank": null, "sliding_window": {}, "num_attention_heads": "x"}'],
)  # fmt: skip
@pytest.mark.parametrize("engine", ["sglang==0.5.9", "vllm==0.19.1"])
def test_what_a_config_says_is_neither_markup_nor_an_escape(tmp_path, text, engine, capsys):
    (tmp_path / "config.json").write_text(text)
    serve = LAUNCH if engine.startswith("sglang") else ["--", "vllm", "serve"]
    code = cli.main(["doctor", str(tmp_path), "--engine", engine, "--gpu", "b200", *serve, "[/x]\x1b[2J", "--odd\x1b[2J"])
    out = capsys.readouterr().out
    assert code in (0, 1) and all(each.isprintable() or each == "\n" for each in out), ascii(out)
    assert not [each for each in out.splitlines() if each.startswith("all is well")]


def test_a_model_with_a_name_that_no_file_can_have(capsys):
    code = cli.main(["doctor", "--engine", "sglang==0.5.9", "--gpu", "b200", *LAUNCH, "x" * 5000, *DRAFTS])
    assert code == 1 and not capsys.readouterr().err, "some bug is possible whose fix is off"


def test_json_in_a_launch_line_that_is_nested_too_deep_is_not_understood():
    launch = read(["vllm", "serve", "x", "--speculative-config", "[" * 100_000])
    assert len(launch.not_understood) == 1


def test_report_does_not_wait_for_a_pth_file(tmp_path, monkeypatch):
    """Python reads those of its site folders alone; a folder on PYTHONPATH may be anyone's."""
    os.mkfifo(tmp_path / "a.pth")
    (tmp_path / "b.pth").symlink_to("/dev/zero")
    (tmp_path / "c.pth").write_text("import os\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert "c.pth" in [*bug_report._at_start()] and "a.pth" not in [*bug_report._at_start()]


def test_run_does_not_wait_for_a_command_that_is_a_fifo(tmp_path):
    os.mkfifo(tmp_path / "command", 0o755)
    assert run.python_flags([str(tmp_path / "command")]) == set()
    (tmp_path / "script").write_text("#!/usr/bin/python3 -S\nprint()\n")
    assert run.python_flags([str(tmp_path / "script")]) == {"S"}


def test_an_index_in_a_folder_is_of_files(tmp_path):
    name = "sglang-1.0-py3-none-any.whl"
    os.mkfifo(tmp_path / name)
    assert index._in_folder(tmp_path.as_uri(), "sglang") == []
    session = pip_session.PipSession(pip_config.from_values({}))
    assert session.get((tmp_path / name).as_uri()).status_code == 404
    (tmp_path / "page").write_text("page")
    assert session.get((tmp_path / "page").as_uri()).text == "page"


def test_pip_is_not_taken_from_the_working_folder(tmp_path):
    """`python -m pip` would run /tmp/pip.py of whoever has put it there."""
    (tmp_path / "pip.py").write_text("open('ran', 'w')")
    (tmp_path / "ast.py").write_text("open('ran', 'w')")
    code = "import os, json\nfrom attnfix.compat.releases import pip_config\nos.chdir(%r)\n"
    code += "print(json.dumps(pip_config._listed_by_pip()))"
    environment = {**os.environ, "PIP_TIMEOUT": "77"}
    done = subprocess.run([sys.executable, "-c", code % str(tmp_path)], env=environment, capture_output=True, text=True)
    assert json.loads(done.stdout)["timeout"] == "77", done.stderr
    assert not (tmp_path / "ran").exists()
