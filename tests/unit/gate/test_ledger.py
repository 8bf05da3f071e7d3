"""A ledger file of another form: one LedgerError, which leaves every engine alone, whatever the file holds."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import BY_ID

FIX = BY_ID["sglang.draft-kv-indices"]
WHOLE = json.loads(ledger.path_of(FIX).read_text())
FIRST = WHOLE["code"][0]
DAMAGE = {
    "no object": 5,
    "a list": [WHOLE],
    "no code": {"code": None},
    "codes by name": {"code": {"a": FIRST}},
    "a code of no form": {"code": ["x"]},
    "another verdict": {"code": [{**FIRST, "verdict": "Affected"}]},
    "a verdict that cannot be looked up": {"code": [{**FIRST, "verdict": []}]},
    "no verdict": {"code": [{"digests": FIRST["digests"], "releases": FIRST["releases"]}]},
    "one digest too few": {"code": [{**FIRST, "digests": FIRST["digests"][1:]}]},
    "a number for a digest": {"code": [{**FIRST, "digests": [1] * len(FIX.code_paths)}]},
    "no digests": {"code": [{**FIRST, "digests": None}]},
    "no release": {"code": [{**FIRST, "releases": {}}]},
    "releases without hashes": {"code": [{**FIRST, "releases": ["0.5.1"]}]},
    "a hash for each witness": {"code": [{**FIRST, "releases": {"0.5.1": ["a"] * len(FIX.code_paths)}}]},
    "one hash too few": {"code": [{**FIRST, "releases": {"0.5.1": ["a"] * (len(FIX.modules) - 1)}}]},
}


def text(damage) -> bytes:
    return json.dumps({**WHOLE, **damage} if isinstance(damage, dict) else damage).encode()


@pytest.mark.parametrize("name", DAMAGE)
def test_a_file_of_another_form(name):
    with pytest.raises(ledger.LedgerError, match=FIX.id):
        ledger.parse(FIX, text(DAMAGE[name]))


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\xff", b"[" * 100_000, b'{"a":' * 100_000, text({})[:-40]])
def test_what_is_no_json(data):
    with pytest.raises(ledger.LedgerError, match=FIX.id):
        ledger.parse(FIX, data)


def test_a_release_that_is_no_version():
    damaged = deepcopy(WHOLE)
    damaged["code"][0]["releases"]["main"] = FIRST["releases"]["0.5.1"]
    book = ledger.parse(FIX, text(damaged))
    for question in (lambda: list(book.releases()), lambda: book.verdict("0.5.9"), book.fixed_in):
        with pytest.raises(ledger.LedgerError, match="'main'"):
            question()


def test_a_local_label_is_left_out_on_either_side():
    (hashes,) = list(FIRST["releases"].values())[:1]
    book = ledger.parse(FIX, text({"code": [{**FIRST, "releases": {"0.5.1+cu128": hashes}}]}))
    assert {book.verdict(release) for release in ("0.5.1", "0.5.1+cu128", "0.5.1+cu130")} == {ledger.AFFECTED}


def test_the_file_itself():
    assert ledger.parse(FIX, text({})) == ledger.load(FIX)
