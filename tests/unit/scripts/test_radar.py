"""The radar, on trees of two files: what is a change, which changes are candidates, and what it refuses."""

from __future__ import annotations

import json

import pytest

from attnfix.compat.releases import fetch
from scripts.radar import __main__ as command
from scripts.radar import funnel, pair, parts, recall
from scripts.radar.compare import compare

BACKEND = "vllm/v1/attention/backends/toy.py"
OTHER = "vllm/v1/attention/backends/other.py"
STOCK = """
LIMIT = 3

class ToyBuilder:
    width = 2

    def build(self, rows, out):
        total = rows + self.width
        out.copy_(total)
        return out
"""


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Makes the release `vllm==NAME` of {path: source}."""

    def fetched(engine: str, name: str) -> object:
        return tmp_path / "releases" / f"{engine}-{name}"

    def make(name: str, files: dict[str, str]) -> None:
        for path, source in files.items():
            file = tmp_path / "releases" / f"vllm-{name}" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(source)

    monkeypatch.setattr(fetch, "fetch", fetched)
    return make


@pytest.fixture
def between(release):
    """The pair of a release with STOCK, and one with other files."""

    def make(files: dict[str, str], before: dict[str, str] | None = None) -> pair.Pair:
        release("1", before or {BACKEND: STOCK})
        release("2", files)
        return pair.Pair("vllm", "1", "2")

    return make


def names(found: list[funnel.Candidate]) -> list[str]:
    return [candidate.change.new.name for candidate in found]


UNCHANGED = {
    "docstring": STOCK.replace("        total", '        """Adds."""\n        total'),
    "comment": STOCK.replace("        total", "        # adds\n        total"),
    "logging": STOCK.replace("        total", '        logger.info_once("adds %s", rows)\n        total'),
    "annotation": STOCK.replace("rows, out)", "rows: int, out: object) -> object").replace("width = 2", "width: int = 2"),
    "format": STOCK.replace("rows + self.width", "(\n            rows\n            + self.width\n        )"),
    "import": STOCK.replace("        total", "        import math\n        total"),
}


@pytest.mark.parametrize("source", UNCHANGED.values(), ids=UNCHANGED)
def test_what_decides_nothing_is_no_change(between, source):
    found = between({BACKEND: source}).comparison
    assert not (found.changes or found.added or found.removed) and source != STOCK


@pytest.mark.parametrize("source", [STOCK, STOCK.replace("def build", "def build_all")], ids=["moved", "renamed"])
def test_a_moved_or_renamed_function_is_no_change(between, source):
    found = between({OTHER: source}).comparison
    assert not (found.changes or found.added or found.removed)


def test_a_function_that_moved_and_changed_is_one_change(between):
    found = between({OTHER: STOCK.replace("rows + self.width", "rows - self.width")}).comparison
    assert [(change.old.path, change.new.path, change.size) for change in found.changes] == [(BACKEND, OTHER, 1)]
    assert not (found.added or found.removed)


MENDS = {
    "wait": ("        out.copy_(total)", "        self.stream.synchronize()\n        out.copy_(total)"),
    "copy": ("rows + self.width", "rows.clone() + self.width"),
    "cast": ("rows + self.width", "rows.to(self.width)"),
    "bound": ("rows + self.width", "rows.clamp(self.width)"),
    "fill": ("        return", "        out[3:].fill_(0)\n        return"),
    "condition": ("        out.copy_(total)", "        if total:\n            out.copy_(total)"),
    "check": ("        return", "        assert total\n        return"),
    "explained": ("        out.copy_(total)", "        # Padded rows must stay\n        out.copy_(total + 1)"),
}


@pytest.mark.parametrize("reason", MENDS)
def test_an_added_mend_is_a_candidate_and_says_why(between, reason):
    (found,) = between({BACKEND: STOCK.replace(*MENDS[reason])}).candidates
    assert found.change.new.name == "ToyBuilder.build" and reason in found.reasons


def test_a_binding_of_a_module_and_of_a_class_are_parts(between):
    found = between({BACKEND: STOCK.replace("= 3", "= 4").replace("= 2", "= 1")}).comparison
    assert {change.new.name for change in found.changes} == {"LIMIT", "ToyBuilder.width"}


def test_a_large_change_without_a_mark_is_none(between):
    more = "".join(f"        out.row{at} = rows\n" for at in range(funnel.SMALL))
    changed = between({BACKEND: STOCK.replace("        return", f"{more}        return")})
    assert len(changed.comparison.changes) == 1 and changed.candidates == []


def test_a_large_change_that_calls_a_new_function_is_a_candidate(between):
    more = "".join(f"        out.row{at} = padded(rows)\n" for at in range(funnel.SMALL))
    (found,) = between(
        {BACKEND: STOCK.replace("        return", f"{more}        return") + "\ndef padded(x):\n    return x\n"}
    ).candidates
    assert found.reasons == ("calls the new padded",)


@pytest.mark.parametrize("name, listed", [("ToyAttention", ["ToyAttention.forward"]), ("ToyTokenizer", [])])
def test_of_models_what_is_about_attention_counts(between, name, listed):
    path, source = (
        "vllm/model_executor/models/toy.py",
        f"class {name}:\n    def forward(self, x):\n        return self.o(x, self.scale)\n",
    )
    assert names(between({path: source.replace("(x,", "(x.clone(),")}, {path: source}).candidates) == listed


def test_code_that_decides_no_attention_is_left_out(between):
    files = {BACKEND: STOCK, "vllm/entrypoints/api.py": STOCK, "vllm/config/x.py": "def a():\n    return 1\n"}
    found = between({**files, "vllm/entrypoints/api.py": "", "vllm/config/x.py": "def a():\n    return 2\n"}, files)
    assert found.comparison.changes == []


def test_one_change_in_two_functions_is_one_candidate(between):
    files = {BACKEND: STOCK, OTHER: STOCK.replace("width = 2", "width = 5")}
    mended = {path: source.replace(*MENDS["wait"]) for path, source in files.items()}
    (found,) = between(mended, files).candidates
    assert [part.name for part in found.alike] == ["ToyBuilder.build"]


def test_new_functions_that_changed_ones_call_are_told_and_removed_ones(between):
    both = "\ndef padded(x):\n    return x\n\ndef unused(a, b, c):\n    return a @ b @ c\n"
    before = STOCK + "\ndef dropped(q):\n    for row in q:\n        yield row\n"
    found = between({BACKEND: STOCK.replace("rows + ", "padded(rows) + ") + both}, {BACKEND: before}).comparison
    assert [part.name for part in found.called] == ["padded"]
    assert [part.name for part in found.removed] == ["dropped"]


def test_a_file_that_is_no_python_is_left_out_and_said(between, capsys):
    assert between({BACKEND: "def (", OTHER: STOCK}).comparison.changes == []
    assert f"{BACKEND} is left out" in capsys.readouterr().err


def test_table_diff_and_json(between, capsys, monkeypatch):
    between({BACKEND: STOCK.replace(*MENDS["wait"])})
    assert command.main(["vllm==1", "vllm==2"]) == 0
    assert f"{BACKEND}:7 → {BACKEND}:7" in capsys.readouterr().out
    assert command.main(["vllm==1", "vllm==2", "--show", "1"]) == 0
    assert "+        self.stream.synchronize()" in capsys.readouterr().out.splitlines()
    capsys.readouterr()
    assert command.main(["vllm==1", "vllm==2", "--show", "1-40"]) == 0
    assert capsys.readouterr().out.startswith("1  ToyBuilder.build\n--- ")
    assert command.main(["vllm==1", "vllm==2", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["candidates"]
    assert row["name"] == "ToyBuilder.build" and "wait" in row["reasons"]


def test_a_diff_says_no_more_to_a_terminal_than_its_letters(between, capsys):
    between({BACKEND: STOCK.replace("        return", "        out.fill_('\x1b[2J')\n        return")})
    assert command.main(["vllm==1", "vllm==2", "--show", "1"]) == 0
    assert r"+        out.fill_('\x1b[2J')" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["vllm"], "'vllm' is no release"),
        (["torch==1", "torch==2"], "'torch==1' is no release"),
        (["vllm==1", "sglang==2"], "are no two releases of one engine"),
        (["vllm==0.0.1"], "knows no release before 0.0.1"),
        (["vllm==1", "vllm==3"], "vllm-3 has no Python files of vllm"),
        (["vllm==1", "vllm==2", "--show", "2"], "has candidates 1 to 1, not 2"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(between, capsys, arguments, said):
    between({BACKEND: STOCK.replace(*MENDS["wait"])})
    assert command.main(arguments) == 1
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["vllm==1", "--unread"],
        ["a==1", "a==2", "a==3"],
        ["vllm==1", "--limit", "-1"],
        ["vllm==1", "--show", "2-1"],
        ["vllm==1", "--show", "first"],
    ],
)
def test_wrong_arguments_end_with_2(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2


def test_pairs_that_nobody_read(capsys):
    every, left = ([str(found) for found in pair.unread(read)] for read in ({}, {"vllm": ["0.18.1..0.19.0"]}))
    assert "vllm 0.18.1..0.19.0" in every and left == [name for name in every if name != "vllm 0.18.1..0.19.0"]
    assert command.main(["--unread"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(pair.unread())


def test_the_committed_table_names_pairs_of_known_releases():
    table = json.loads(pair.READ.read_text())
    for engine, read in table.items():
        assert {*read} <= {found.name for found in pair.known(engine)}


def test_a_file_that_was_read_before_is_not_parsed_again(between, monkeypatch):
    found = between({BACKEND: STOCK})
    assert found.old
    monkeypatch.setattr(parts, "of_source", lambda *_: pytest.fail("parsed"))
    assert compare(found.old, found.new).changes == []


def test_recall_knows_who_mended_what_and_finds_its_rank(between):
    mended = {(bug, str(found)) for found, bug, _ in recall.mends("vllm")}
    assert ("vllm.mamba-prefix-cache", "vllm 0.26.0..0.27.0") in mended
    assert ("vllm.async-preemption", "vllm 0.26.0..0.27.0") in mended
    assert not {bug for bug, _ in mended} & {"vllm.int8-mla-context"}, "no release mended it"
    found = between({BACKEND: STOCK.replace(*MENDS["wait"]).replace("= 3", "= 4")}).candidates
    places = [(candidate.change.new.module, candidate.change.new.name) for candidate in found]
    assert [recall.rank(found, {place}) for place in places] == [1, 2] and recall.rank(found, {("vllm.x", "y")}) is None
