"""The skeleton of a fix: what is written where, and what is refused."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from scripts.new_fix import __main__ as new_fix

ROOT = Path(__file__).resolve().parents[3]
TARGET = "vllm.attention.layer:Attention.forward"


@pytest.fixture
def checkout(tmp_path):
    for engine in ("sglang", "vllm"):
        (tmp_path / "tests" / "fixes" / engine).mkdir(parents=True)
        (tmp_path / "patches" / engine).mkdir(parents=True)
        shutil.copy(ROOT / "patches" / engine / "catalogue.py", tmp_path / "patches" / engine)
    return tmp_path


def folders(checkout, engine):
    """What the catalogue there lists."""
    tree = ast.parse((checkout / "patches" / engine / "catalogue.py").read_text())
    (value,) = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == "_FOLDERS"]
    return ast.literal_eval(value)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_folder_a_test_and_the_last_line_of_the_catalogue(checkout, engine):
    before = folders(checkout, engine)
    files = new_fix.write(engine, "my-fix", root=checkout)
    assert folders(checkout, engine) == (*before, "my_fix")
    made = {path.relative_to(checkout).as_posix() for path in checkout.rglob("*my_fix*/*") if path.is_file()}
    assert made == {f"patches/{engine}/my_fix/{name}.py" for name in ("__init__", "fix", "wrap", "facts", "proof")}
    beside = [f"tests/fixes/{engine}/my_fix.py", f"tests/fixes/{engine}/test_my_fix.py", f"patches/{engine}/catalogue.py"]
    assert files[-3:] == [checkout / path for path in beside]
    for path in files[:-1]:
        assert "FILL IN" in path.read_text() and "$" not in path.read_text() and ast.parse(path.read_text())


def test_the_target_is_named_in_data_proof_and_test(checkout):
    fix, _, _, proof, _, test, _ = new_fix.write("vllm", "my-fix", TARGET, checkout)
    assert '_MODULE = "vllm.attention.layer"' in fix.read_text() and '(f"{_MODULE}:Attention.forward",)' in fix.read_text()
    assert 'modules = ("vllm.attention.layer",)' in proof.read_text() and 'target_of(FIX, "forward")' in test.read_text()


@pytest.mark.parametrize("name", ["My-fix", "my_fix", "-fix", "my--fix", "../fix", ""])
def test_a_name_that_no_fix_can_have_is_refused(checkout, name):
    with pytest.raises(new_fix.Refused, match="is no name of a fix"):
        new_fix.write("vllm", name, root=checkout)
    assert folders(checkout, "vllm") == folders(ROOT, "vllm")


@pytest.mark.parametrize("target", ["vllm.attention.layer", "sglang.srt.utils:one", "vllm.attention.layer:", ":one"])
def test_a_target_that_is_no_function_of_the_engine_is_refused(checkout, target):
    with pytest.raises(new_fix.Refused):
        new_fix.write("vllm", "my-fix", target, checkout)
    assert not (checkout / "patches" / "vllm" / "my_fix").exists()


def test_what_is_there_stays(checkout, monkeypatch, capsys):
    monkeypatch.setattr(new_fix, "ROOT", checkout)
    assert new_fix.main(["vllm", "my-fix"]) == 0
    assert "attnfix prove --engine vllm==RELEASE --fix vllm.my-fix" in capsys.readouterr().out
    (checkout / "patches/vllm/my_fix/fix.py").write_text("mine")
    assert new_fix.main(["vllm", "my-fix"]) == 2
    assert capsys.readouterr().err == "patches/vllm/my_fix is there already\n"
    assert (checkout / "patches/vllm/my_fix/fix.py").read_text() == "mine" and folders(checkout, "vllm").count("my_fix") == 1


def test_no_fix_in_the_catalogue_is_a_skeleton():
    files = [path for folder in ("patches", "tests/fixes") for path in (ROOT / folder).rglob("*.py")]
    assert [path for path in files if "FILL IN" in path.read_text()] == []
