"""The table of `attnfix prove`: one row for each release and fix, in 100 columns."""

from __future__ import annotations

import pytest

from attnfix.cli import prove
from attnfix.patches.catalogue import FIXES
from attnfix.prove import command
from attnfix.prove.verdict import FAILED, UNPROVEN, Result

LONGEST = max((fix.id for fix in FIXES), key=len)


def result(fix=LONGEST, release="0.5.10.post1", verdict="fixed upstream", **facts):
    given = {"kernel": "interpreted", "stock_error": None, "fixed_error": 0.00047, "control_identical": True, **facts}
    return Result(fix, fix.partition(".")[0], release, verdict, **{"reason": "why", **given})


@pytest.fixture
def shown(monkeypatch, capsys):
    def show(*results, columns=100):
        monkeypatch.setenv("COLUMNS", str(columns))
        command._print([*results])
        out = capsys.readouterr().out
        assert max(map(len, out.splitlines()[1:])) <= columns, out
        return out.splitlines()

    return show


def test_one_row_for_each_fix_of_a_release(shown):
    results = [result(fix.id) for fix in FIXES]
    rows = [line.split() for line in shown(*results) if "→ 0.00047" in line]
    assert [row[0] for row in rows] == [fix.id for fix in FIXES]
    assert {tuple(row[1:]) for row in rows} == {("not", "finite", "→", "0.00047", "same", "fixed", "upstream", "interpreted")}


def test_a_release_has_its_title_and_many_releases_of_one_fix_are_one_table(shown):
    first, second = "sglang.zero-kv-rows", "sglang.lse-log-base"
    lines = shown(result(first, "0.5.8"), result(second, "0.5.8"), result(first, "0.5.9"), result(second, "0.5.9"))
    assert [line.strip() for line in lines if line.startswith("sglang 0.5")] == ["sglang 0.5.8", "sglang 0.5.9"]
    lines = shown(*(result(first, f"0.5.{n}") for n in range(4, 9)))
    assert [line.strip() for line in lines].count(first) == 1
    assert [line.split()[0] for line in lines if "→ 0.00047" in line] == [f"0.5.{n}" for n in range(4, 9)]


def test_what_is_measured_in_another_way_is_said_once_below(shown):
    named = "launches with a window"
    pair = [result(f"vllm.{name}", "1.0", "proven", measure=named) for name in ("mla-context-order", "lse-log-base")]
    lines = shown(*pair, columns=80)
    assert [line for line in lines if named in line] == [f"vllm.mla-context-order, vllm.lse-log-base: {named}"]


def test_a_failure_is_said_with_its_seed_and_an_edit_has_a_column(shown, capsys):
    lines = shown(result(edit="a-fault"), columns=120)
    assert "a-fault" in " ".join(lines)
    command._print([result(verdict=FAILED, seed=7)])
    assert "(--seed 7)" in capsys.readouterr().err


def test_a_reason_of_several_fixes_is_said_once(shown, capsys):
    why = "No module named 'x'"
    command._print([result(fix.id, verdict=UNPROVEN, seed=at, reason=why) for at, fix in enumerate(FIXES[:3])])
    (line,) = capsys.readouterr().err.splitlines()
    assert all(f"{fix.id} (--seed {at})" in line for at, fix in enumerate(FIXES[:3])) and line.count(why) == 1


@pytest.mark.parametrize("columns", [60, 80, 90])
def test_narrower_terminals_hold_every_word(shown, columns):
    words = " ".join(shown(result(), columns=columns)).split()
    assert {LONGEST, "finite", "0.00047", "same", "interpreted"} <= set(words)


def test_a_clone_lacks_no_wheel_of_proofs(tmp_path, monkeypatch):
    """A build of the wheel leaves its metadata in a clone, which has the proofs themselves."""
    (tmp_path / "attnfix.egg-info").mkdir()
    told = "Metadata-Version: 2.4\nName: attnfix\nVersion: 1.0.0\n"
    required = "".join(f'Requires-Dist: {name}; extra == "prove"\n' for name in ("attnfix-prove==1.0.0", "not-here"))
    (tmp_path / "attnfix.egg-info" / "PKG-INFO").write_text(told + required)
    monkeypatch.syspath_prepend(tmp_path)
    assert prove._missing("prove") == ["not-here"]
