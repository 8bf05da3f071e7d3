"""README.md, docs/ and the pages of fixes: links, commands, variables and files exist, YAML and Dockerfiles are sound."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
import yaml
from jsonschema import ValidationError

from attnfix import cli
from attnfix.cli import doctor, releases
from attnfix.compat.arming import switches
from attnfix.compat.doctor import launch_command
from attnfix.compat.doctor.condition import HIT
from attnfix.compat.doctor.deployment import Deployment
from attnfix.compat.engines import ENGINES
from attnfix.compat.gate import ledger
from attnfix.compat.status import fix_state
from attnfix.patches.catalogue import BY_ID, FIXES, known_bugs
from scripts.pages import fix_pages
from tests.support.manifests import check
from tests.support.pages import Page, arguments_in, call

ROOT = Path(__file__).resolve().parents[3]
PAGES = [Page(path) for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md")))]
PROJECT = "attnfix|compat|patches|kernels|scripts|tests|docs|requirements"
#: What docs/add-a-fix.md makes; tests/integration/test_add_a_fix.py does so
_TYPED_FIX, _TYPED_FILES = "vllm.my-fix", ("/my_fix/", "/vllm/my_fix.py", "/test_my_fix.py")
#: Pages of fixes, as they would stand in docs/
MADE = {path: Page(path, write()) for name, write in fix_pages.pages().items() for path in [ROOT / "docs" / name]}
each_page = pytest.mark.parametrize("page", [*PAGES, *MADE.values()], ids=lambda page: str(page.path.relative_to(ROOT)))


@each_page
def test_links_lead_somewhere(page):
    assert broken_links(page) == []


def broken_links(page: Page) -> list[str]:
    return [link for link in page.links if not re.match(r"(https?|mailto):", link) and not _leads(page, link)]


def _leads(page: Page, link: str) -> bool:
    name, _, anchor = link.partition("#")
    path = Path(os.path.normpath(page.path.parent / name)) if name else page.path
    if path in MADE and page.path in MADE:
        return not anchor or anchor in MADE[path].anchors
    if not path.exists() or ROOT not in (path.resolve(), *path.resolve().parents):
        return False
    return not anchor or (path.suffix == ".md" and anchor in Page(path).anchors)


def test_every_page_can_be_reached_from_the_index():
    seen, ahead = set(), [ROOT / "docs" / "README.md"]
    while ahead:
        path = ahead.pop()
        if path.suffix == ".md" and path not in seen:
            seen.add(path)
            names = (link.partition("#")[0] for link in Page(path).links if "://" not in link)
            ahead += [(path.parent / name).resolve() for name in names if name]
    at_the_top = {ROOT / name for name in ("README.md", "CONTRIBUTING.md")}
    assert {page.path for page in PAGES} - seen == at_the_top and "CONTRIBUTING.md" in Page(ROOT / "README.md").links


@each_page
def test_commands_parse(page, monkeypatch):
    _only_parse(monkeypatch)
    wrong = {" ".join(arguments): said for arguments in page.commands() if (said := refused(arguments))}
    assert wrong == {}


def _only_parse(monkeypatch) -> None:
    """No command runs: what is left of a call is the parser of the real command line."""
    for module in vars(cli).values():
        if hasattr(module, "add_arguments"):
            monkeypatch.setattr(module, "run", lambda options: 0)


def refused(arguments: list[str]) -> str | None:
    """Why attnfix does not take these arguments; None where it does. A command's bare name is a mention of it."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            code = cli.main([*arguments, "--help"] if len(arguments) == 1 else arguments)
        except SystemExit as end:
            code = end.code
    return (said.getvalue().strip().splitlines() or ["no word"])[-1] if code else None


@each_page
def test_fixes_and_releases_are_known(page):
    text = re.sub(r"\(https?://[^)]*\)", "", page.text)
    fixes = set(re.findall(r"\b(?:sglang|vllm)\.[a-z\d]+(?:-[a-z\d]+)+(?![\w-]|\.md)", text))
    named = {engine: set(re.findall(rf"\b{engine}==([\w.]+\w)", text)) for engine in ("sglang", "vllm")}
    known = {*BY_ID, _TYPED_FIX, *(bug.id for engine in ENGINES for bug in known_bugs(engine))}
    assert fixes <= known
    for engine, found in named.items():
        books = [ledger.load(fix) for fix in FIXES if fix.engine == engine]
        assert {name for name in found if all(book.verdict(name) == ledger.UNKNOWN for book in books)} == set()


@each_page
def test_variables_exist(page):
    known = {*switches.GENERAL, *(fix.switch for fix in FIXES)}
    assert set(re.findall(r"\bATTNFIX_[A-Z\d_]*[A-Z\d]\b", page.text)) <= known


@each_page
def test_files_exist(page):
    code = [*page.inline, *(line for block in page.blocks_in("sh") for line in block.split())]
    paths = {word for word in code if re.fullmatch(rf"({PROJECT})/[\w./*-]+\.\w+", word)}
    assert {path for path in paths if not list(ROOT.glob(path)) and not any(typed in path for typed in _TYPED_FILES)} == set()


@each_page
def test_yaml_is_sound(page, monkeypatch):
    _only_parse(monkeypatch)
    for block in page.blocks_in("yaml"):
        for document in yaml.safe_load_all(block):
            if "apiVersion" in document:
                _validated(document)
            for arguments in _calls_in_yaml(document):
                assert refused(arguments) is None, arguments
            for pod in _with_key(document, "containers"):
                declared = {volume["name"] for volume in pod.get("volumes", ())}
                containers = [*pod["containers"], *pod.get("initContainers", ())]
                mounted = {mount["name"] for each in containers for mount in each.get("volumeMounts", ())}
                assert mounted == declared


def _validated(manifest: dict) -> None:
    check(manifest)
    with pytest.raises(ValidationError):
        check({**manifest, "unknown": 1})


def _calls_in_yaml(node: Any) -> Iterator[list[str]]:
    """Arguments of each `command` that calls attnfix: a list of words, of which one may be a shell line."""
    if isinstance(node, dict):
        for value in node.values():
            yield from _calls_in_yaml(value)
    elif isinstance(node, list) and all(isinstance(word, str) for word in node):
        yield from call(node)
        if "-c" in node:
            yield from arguments_in(node[-1])
    elif isinstance(node, list):
        for value in node:
            yield from _calls_in_yaml(value)


def _with_key(node: Any, key: str) -> Iterator[dict]:
    values = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    if isinstance(node, dict) and key in node:
        yield node
    for value in values:
        yield from _with_key(value, key)


@each_page
def test_dockerfiles_are_an_image_and_the_wheel(page):
    for block in page.blocks_in("dockerfile"):
        first, *others = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        assert re.fullmatch(r"FROM [\w./-]+:v?\d[\w.-]*", first), "an image by its release: attnfix is for pinned ones"
        added = [line for line in others if not line.startswith("ENV ")]
        installed = [line.replace(" --target /attnfix", "") for line in added]
        assert installed == ["COPY dist/attnfix-*.whl /tmp/", "RUN pip install /tmp/attnfix-*.whl"]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_quickstart_shows_each_way_to_run(engine):
    page = Page(ROOT / "docs" / f"quickstart-{engine}.md")
    called = [arguments[0] for arguments in page.commands()]
    assert {"verdict", "status", "run"} <= set(called)
    (dockerfile,) = page.blocks_in("dockerfile")
    release = re.match(r"FROM \S+:v([\d.]+)\n", dockerfile)[1]
    assert set(re.findall(r"(?<![\d.])\d+\.\d+\.\d+(?![\d.]*\d)", page.text)) == {release}, "one release throughout"
    (deployment,) = [yaml.safe_load(block) for block in page.blocks_in("yaml")]
    assert f"`{QUICKSTART_FIX[engine]}`" in page.text
    (container,) = next(_with_key(deployment, "containers"))["containers"]
    assert _corrected(engine, release, [*container.get("command", ()), *container["args"]]) == {QUICKSTART_FIX[engine]}
    assert list(_calls_in_yaml(container["startupProbe"])) == [["status", "--ready"]]
    assert container["startupProbe"]["timeoutSeconds"] > 1, "the default is less than a Python takes to start"
    later = [container[name] for name in ("readinessProbe", "livenessProbe") if name in container]
    assert later[0]["httpGet"]["path"] == "/health" and not [*_calls_in_yaml(later)], "a fix that fails is an alert"
    assert {"name": "ATTNFIX_RUN_DIR", "value": "/run/attnfix"} in container["env"]
    assert "/run/attnfix" in [mount["mountPath"] for mount in container["volumeMounts"]]


QUICKSTART_FIX = {"sglang": "sglang.lse-log-base", "vllm": "vllm.mla-context-order"}
_V2_LITE = {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "num_attention_heads": 16, "torch_dtype": "bfloat16",
}  # fmt: skip


def _corrected(engine: str, release: str, words: list[str]) -> set[str]:
    """Fixes that are on by default and whose bugs this launch hits on an H100."""
    launch = launch_command.read(words, engine)
    deployment = Deployment(engine, config=_V2_LITE, gpu=doctor.gpu_named("h100"), launch=launch, environment={})
    rows = doctor.examine(deployment, release)
    return {row["fix"] for row in rows if row["verdict"] == HIT and row["corrected"]}


@each_page
def test_other_code_is_code(page):
    for block in page.blocks_in("python"):
        if "…" not in block:  # a sketch
            ast.parse(textwrap.dedent(block))
    for block in page.blocks_in("toml"):
        tomllib.loads(block)
    for block in page.blocks_in("json"):
        json.loads(block)
    known = {"", "sh", "console", "yaml", "dockerfile", "python", "toml", "json", "text"}
    assert {language for language, _ in page.blocks} <= known


def test_the_demo_has_a_row_for_every_fix_and_readme_shows_some_of_them():
    rows, shown = (
        {line.split()[0]: line for line in text.splitlines() if re.match(r" (sglang|vllm)\.\S+ .* (same|-) ", line)}
        for text in ((ROOT / "docs" / "demo.md").read_text(), (ROOT / "README.md").read_text())
    )
    assert rows.keys() == BY_ID.keys() and shown.items() <= rows.items() and shown
    assert max(map(len, rows.values())) <= 100


def test_releases_are_written_as_the_command_line_reads_them():
    named = {name for page in PAGES for name in re.findall(r"\b(?:sglang|vllm)==[\w.]+\w", page.text)}
    assert named and all(releases.parse(name) for name in named)


def test_the_safety_page_tells_every_state():
    text = (ROOT / "docs" / "safety.md").read_text()
    known = {value for name, value in vars(fix_state).items() if name.isupper() and isinstance(value, str)}
    assert set(re.findall(r"^\| `([a-z ]+)` \|", text, re.M)) == known


def test_the_words_of_a_switch_mean_what_the_page_says():
    text = (ROOT / "docs" / "switches.md").read_text()
    rows = re.findall(r"^\| ((?:`[a-z\d]+`,? ?(?:or unset)?)+) \| (off|on|the fix's default)", text, re.M)
    meanings = {"off": False, "on": True, "the fix's default": None}
    told = {word: meanings[meaning] for words, meaning in rows for word in re.findall(r"`(\w+)`", words)}
    assert told == {word: value for word, value in switches._VALUES.items() if word}


# The checks above are only as good as what they see


def test_what_is_wrong_in_a_page_is_seen(tmp_path, monkeypatch):
    _only_parse(monkeypatch)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "b.md").write_text("# There\n")
    links = "[a](nowhere.md) [a](#nowhere) [a](b.md#nowhere) [`a`](none.md) ![a](none.svg) [a](/etc/hosts) [a](b.md#there)"
    page = tmp_path / "a.md"
    shell = "$ ATTNFIX=0 attnfix status --json | jq .\npython3 /a/attnfix staus --x && ls"
    page.write_text(f"# A title\n{links}\n```sh\n{shell}\n```\n")
    assert len(broken_links(Page(page))) == 6
    assert [refused(arguments) is None for arguments in Page(page).commands()] == [True, False]
    probe = {"exec": {"command": ["attnfix", "staus"]}, "other": [{"command": ["sh", "-c", "attnfix status"]}]}
    assert list(_calls_in_yaml(probe)) == [["staus"], ["status"]]
