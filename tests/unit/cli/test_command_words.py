"""What the command line says to someone who does not know it yet: help that fits a screen, and the nearest word."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from attnfix import cli
from attnfix.cli import releases
from attnfix.cli.listing import named


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_fits_a_screen_and_has_an_example_that_parses(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        cli.main([name, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0 and len(lines) <= 24 and max(map(len, lines)) <= 80, "\n".join(lines)
    module = cli.COMMANDS[name]
    program, *arguments = shlex.split(module.EXAMPLE)
    assert f"example: {module.EXAMPLE}" in " ".join(" ".join(lines).split())
    assert program == "attnfix" and arguments[0] == name
    assert cli.parse(arguments).run is module.run


def test_help_lists_every_command_on_one_screen(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= 24 and all(f"  {name} " in text for name in cli.COMMANDS)


@pytest.mark.parametrize(
    "arguments, nearest",
    [
        (["explian", "x"], "explain"),
        (["Status"], "status"),
        (["explain", "sglang.zero-kv-row"], "sglang.zero-kv-rows"),
        (["explain", "sglang.zero_kv_rows"], "sglang.zero-kv-rows"),
        (["explain", "zero-kv"], "sglang.zero-kv-rows"),
        (["explain", "ATTNFIX_VLLM_MLA_CONTEXT_ORDER"], "vllm.mla-context-order"),
        (["verdict", "vlmm==0.20.0"], "vllm"),
        (["verdict", "SGLang==0.5.9"], "sglang"),
    ],
)
def test_a_misspelt_word_gets_the_nearest_in_one_sentence(arguments, nearest, capsys):
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("attnfix: ") and line.endswith(f"did you mean {nearest}?") and not out


@pytest.mark.parametrize(
    "arguments, known",
    [
        (["qqq"], f"known: {', '.join(cli.COMMANDS)}"),
        (["verdict", "qqq==1"], "known: sglang, vllm"),
        (["explain", "qqq"], "`attnfix list` and `attnfix known` list all"),
        (["--bogus"], "'--bogus' is no option of attnfix; `attnfix --help` shows all, and every command"),
    ],
)
def test_a_word_near_none_gets_them_all(arguments, known, capsys):
    assert cli.main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(known)


@pytest.mark.parametrize(
    "arguments, shows",
    [
        (["help"], "usage: attnfix ["),
        (["help", "explain"], "usage: attnfix explain ["),
        (["version"], "attnfix 1."),
        (["-V"], "attnfix 1."),
    ],
)
def test_help_and_version_under_any_name(arguments, shows, capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 0 and capsys.readouterr().out.startswith(shows)


def test_a_fix_may_be_named_without_its_engine(capsys):
    assert named("mla-context-order").id == "vllm.mla-context-order"
    assert cli.main(["explain", "lse-log-base"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("is a fix of both engines: name sglang.lse-log-base or vllm.lse-log-base")


@pytest.mark.parametrize(
    "here, arguments, code, shows",
    [
        (["vllm"], ["verdict"], 0, "vllm 0.25.1\n"),
        (["vllm"], ["verdict", "vllm"], 0, "vllm 0.25.1\n"),
        (["vllm"], ["verdict", "sglang"], 2, "no sglang is installed here; name a release, as in sglang==0."),
        (["vllm"], ["forecast", "--from", "vllm==0.19.1"], 0, "vllm 0.19.1 → 0."),
        (["sglang", "vllm"], ["verdict"], 2, "sglang and vllm are installed here; name one, as in sglang==0."),
        ([], ["forecast"], 2, "no engine is installed here; name one, as in sglang==0."),
        ([], ["doctor"], 2, "no engine is installed here; name one, as in --engine sglang==0."),
        (["vllm"], ["prove", "--engine", "vllm"], 2, "name the release too, as in vllm==0."),
    ],
)
def test_the_engine_that_is_installed_need_not_be_named(here, arguments, code, shows, monkeypatch, capsys):
    monkeypatch.setattr(releases, "installed_root", lambda engine: Path("x") if engine.name in here else None)
    monkeypatch.setattr(releases, "version_beside", lambda root: "0.25.1")
    assert cli.main(arguments) == code
    assert shows in "".join(capsys.readouterr())


def test_a_character_that_the_output_has_not_is_escaped():
    """A folder with a name that is no UTF-8, in a record; a table in a terminal that knows ASCII alone."""
    code = "import sys\nfrom attnfix import cli\ncli.main(['list'])\nprint(chr(0xdcff), file=sys.stderr)"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict", "COLUMNS": "80"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "sglang.zero-kv-rows" in done.stdout, done.stderr
    assert done.stderr == "\\udcff\n"


def test_the_command_line_takes_what_is_installed_first(tmp_path):
    (tmp_path / "rich.py").write_text("raise SystemExit('the stray file ran')")
    done = subprocess.run([sys.executable, "-m", "attnfix", "list"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "sglang.zero-kv-rows" in done.stdout, done.stderr


def test_run_keeps_what_is_on_the_path_and_where():
    from attnfix.cli.run import environment

    for given, kept in ((None, []), ("", []), ("/x", ["/x"]), (":/x", ["", "/x"]), ("/x::/y", ["/x", "", "/y"])):
        variables = {} if given is None else {"PYTHONPATH": given}
        folder, *rest = environment(variables)["PYTHONPATH"].split(os.pathsep)
        assert folder.endswith("path_entry") and rest == kept
        assert environment(environment(variables)) == environment(variables)
