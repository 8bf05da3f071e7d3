"""An index of another form: one LedgerError, which leaves every engine alone, whatever the file holds."""

from __future__ import annotations

import json

import pytest

from attnfix.compat.gate import index, ledger
from attnfix.patches.catalogue import BY_ID, FIXES
from scripts.ledger import index_text

FIX = BY_ID["sglang.draft-kv-indices"]
NAME = f"fix {FIX.id}"
WHOLE = json.loads(index_text.text({FIX: index_text.rows_of(FIX)}))
ROW = WHOLE[NAME]
FIRST = ROW["codes"][0]
EDIT = ["name", "1.0: an edit", [None] * len(FIX.code_paths)]
DAMAGE = {
    "no row": {NAME: None},
    "a list": {NAME: [ROW]},
    "no codes": {NAME: {**ROW, "codes": None}},
    "codes by name": {NAME: {**ROW, "codes": {"a": FIRST}}},
    "a code of no form": {NAME: {**ROW, "codes": ["x"]}},
    "another verdict": {NAME: {**ROW, "codes": [[FIRST[0], "Affected", FIRST[2]]]}},
    "a verdict that cannot be looked up": {NAME: {**ROW, "codes": [[FIRST[0], [], FIRST[2]]]}},
    "a code without a name": {NAME: {**ROW, "codes": [[None, *FIRST[1:]]]}},
    "no release": {NAME: {**ROW, "codes": [[*FIRST[:2], ""]]}},
    "a release that is not there": {NAME: {**ROW, "codes": [[*FIRST[:2], "0-900"]]}},
    "a span backwards": {NAME: {**ROW, "codes": [[*FIRST[:2], "3-1"]]}},
    "a span of no numbers": {NAME: {**ROW, "codes": [[*FIRST[:2], "a-b"]]}},
    "a number for a span": {NAME: {**ROW, "codes": [[*FIRST[:2], 3]]}},
    "other witnesses": {NAME: {**ROW, "code_paths": ROW["code_paths"][1:]}},
    "an edit with one digest too few": {NAME: {**ROW, "edited": [[*EDIT[:2], EDIT[2][1:]]]}},
    "an edit with a number for a digest": {NAME: {**ROW, "edited": [[*EDIT[:2], [1] * len(FIX.code_paths)]]}},
    "no releases": {"releases": None},
}


def read(damage=None, text=None) -> ledger.Ledger:
    return ledger.of(FIX, index.Index(text or index_text.written({**WHOLE, **(damage or {})}).encode()))


@pytest.mark.parametrize("name", DAMAGE)
def test_a_row_of_another_form(name):
    with pytest.raises(ledger.LedgerError, match=FIX.id):
        read(DAMAGE[name])


LINES = index_text.written(WHOLE).encode()


@pytest.mark.parametrize("data", [b"x", b"\xff\xfe\xff", b"[" * 100_000, b"{\n}", LINES[:-40], LINES[2:]])
def test_what_is_no_index(data):
    with pytest.raises(ledger.LedgerError):
        read(text=data)


@pytest.mark.parametrize("name, value", [("index_format", 99), ("digest_format", 99), ("digest_format", None)])
def test_an_index_of_another_format(name, value):
    with pytest.raises(ledger.LedgerError, match=f"{name} {value}"):
        read({name: value})


@pytest.mark.parametrize("rows", [5, "x", ["x"], {"a": 5}, {"a": "9-1"}, {"a": None}])
def test_rows_of_another_form(rows):
    place, module = FIX.code_paths[0], FIX.modules[0]
    book = read({f"code {place}": rows, f"file {module}": rows})
    for look in (book.by_digests, book.by_files):
        with pytest.raises(ledger.LedgerError, match="is damaged"):
            look([None] * len(FIX.code_paths))


def test_a_new_fix_is_told_where_its_line_comes_from():
    with pytest.raises(ledger.LedgerError, match=f"no line for {FIX.id}; a new fix"):
        read({f"fix {FIX.id}": None})


def test_targets_that_name_a_fix_without_a_row():
    with pytest.raises(ledger.LedgerError, match="its targets"):
        index.Index(index_text.written({**WHOLE, "targets": {"sglang.x": ["sglang.y"]}}).encode()).fixes  # noqa: B018


def test_a_release_that_is_no_version():
    book = read({"releases": ["main", *WHOLE["releases"][1:]]})
    for question in (lambda: list(book.releases()), lambda: book.verdict("0.5.9"), book.fixed_in):
        with pytest.raises(ledger.LedgerError, match="'main'"):
            question()


def test_a_local_label_is_left_out_on_either_side():
    rows, _ = index_text.rows_of(FIX)
    labelled = [rows[0]._replace(release="0.5.1+cu128", verdict=ledger.AFFECTED)]
    book = ledger.of(FIX, index.Index(index_text.text({FIX: (labelled, [])}).encode()))
    assert {book.verdict(release) for release in ("0.5.1", "0.5.1+cu128", "0.5.1+cu130")} == {ledger.AFFECTED}


def test_equal_code_with_two_verdicts_is_not_written():
    rows, _ = index_text.rows_of(FIX)
    twice = [rows[0]._replace(verdict=verdict, release=release) for release, verdict in (("1.0", "affected"), ("2.0", "x"))]
    with pytest.raises(ValueError, match="unequal verdicts at 2"):
        index_text.text({FIX: (twice, [])})


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_the_file_itself(engine):
    """What it says, written again, is the same to the byte, and each row leads back to its code."""
    fixes = [fix for fix in FIXES if fix.engine == engine]
    found = {fix: index_text.rows_of(fix) for fix in fixes}
    assert index_text.text(found) == ledger.path_of(fixes[0]).read_text()
    for fix, (rows, edits) in found.items():
        book = ledger.load(fix)
        for row in rows:
            assert (
                book.by_digests(row.digests) == book.by_files(row.hashes) and row.release in book.by_files(row.hashes).releases
            )
        assert [book.by_digests(edit.digests).edited for edit in edits] == [edit.label for edit in edits]


def test_what_the_index_says_of_a_fix_is_what_its_folder_declares():
    known = index.read(ledger.path_of(FIX))
    entry = index.Entry(known, FIX.id, {FIX.package: FIX}.__getitem__)
    assert entry.whole() is FIX and entry.modules == FIX.modules and ledger.load(entry) == ledger.load(FIX)
    other = index.Index(index_text.written({**WHOLE, NAME: {**ROW, "default": not FIX.default}}).encode())
    with pytest.raises(ledger.LedgerError, match="another declaration"):
        index.Entry(other, FIX.id, {FIX.package: FIX}.__getitem__).whole()
