"""One target under the coverage-guided fuzzer: `python fuzz_target.py TARGET SECONDS SEED FINDINGS`.

An exception that a target does not declare is written to the file FINDINGS, once for each place it comes from, as a line of
JSON; the fuzzer goes on. libFuzzer's own figures go to standard error. Needs CPython 3.11-3.13: atheris rewrites its byte code.
"""

from __future__ import annotations

import io
import json
import os
import struct
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import atheris
from packaging.version import Version

with atheris.instrument_imports(include=["attnfix"]):
    from attnfix.cli import output, status, status_view
    from attnfix.compat.arming import switches
    from attnfix.compat.doctor import diagnosis
    from attnfix.compat.doctor.deployment import Deployment
    from attnfix.compat.doctor.engine_options import options
    from attnfix.compat.doctor.launch_command import LaunchError, read
    from attnfix.compat.fix import Fix, Judgeable
    from attnfix.compat.gate import index, ledger
    from attnfix.compat.status import metrics, process_record
    from attnfix.patches.catalogue import BY_ID, FIXES, facts_of_fixes
from scripts.ledger import index_text

#: Longest input, bytes: room for a ledger of three codes
MAX_LEN = 4096
#: The newest releases whose defaults were read, and words of launch lines
VERSIONS = {"sglang": Version("0.5.23"), "vllm": Version("0.33.0")}
WORDS = sorted({name for engine in VERSIONS for option in options(engine) for name in option.names})
#: What a value of JSON may be instead. DEEP is replaced by text, since no encoder writes it
DEEP = "deep nesting"
STRANGE = (None, True, -1, 2**70, 1.5, float("nan"), float("inf"), "", "\ud800", "\x00", "[red]", "1.0", "x" * 5000, [], {},
           [[]], {"": None}, DEEP)  # fmt: skip


# A document of the right form, bent in a few places


def _bent(document: Any, choose: atheris.FuzzedDataProvider, write: Callable[[Any], str]) -> bytes:
    """JSON of `document` with up to five values replaced, removed or added; now and then cut."""
    for _ in range(choose.ConsumeIntInRange(0, 5)):
        places = list(_places(document))
        holder, key = places[choose.ConsumeIntInRange(0, len(places) - 1)]
        action = choose.ConsumeIntInRange(0, 3)
        if action == 0:
            del holder[key]
        elif action == 1 and isinstance(holder, dict):
            holder[choose.ConsumeUnicode(12)] = holder[key]
        elif action == 2:
            holder[key] = choose.ConsumeUnicode(40)
        else:
            holder[key] = json.loads(json.dumps(STRANGE[choose.ConsumeIntInRange(0, len(STRANGE) - 1)]))
        if not document:
            break
    text = write(document).replace(f'"{DEEP}"', "[" * 5000 + "]" * 5000).encode()
    return text[: choose.ConsumeIntInRange(0, len(text))] if choose.ConsumeIntInRange(0, 9) == 0 else text


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(document) if isinstance(document, dict) else range(len(document)):
        yield document, key
        if isinstance(document[key], (dict, list)):
            yield from _places(document[key])


def _document(data: bytes, document: Any, write: Callable[[Any], str] = json.dumps) -> bytes:
    """The input as it is, or `document` bent as it says."""
    if data[:1] < b"\x40":
        return data[1:]
    return _bent(json.loads(json.dumps(document)), atheris.FuzzedDataProvider(data[1:]), write)


# Targets: what an input is, and which exceptions are outcomes that the parser declares


def ledger_text(data: bytes) -> None:
    """The index of an engine. Outcome: LedgerError, or a ledger that answers every question."""
    fix = BY_ID["sglang.draft-kv-indices"]
    try:
        known = index.Index(_document(data, _small_index(fix), index_text.written))
        entry = index.Entry(known, fix.id, {fix.package: fix}.__getitem__)
        _ask(fix, ledger.of(fix, known))
        _ask(entry, ledger.of(entry, known))
        assert isinstance(entry.default, bool) and entry.whole() is fix
    except ledger.LedgerError:
        return


@cache
def _small_index(fix: Fix) -> dict[str, Any]:
    """What it says of one fix in eight releases: more would be more of the same."""
    rows, edits = index_text.rows_of(fix)
    whole: dict[str, Any] = json.loads(index_text.text({fix: (rows[:8], edits)}))
    return whole


def _ask(fix: Judgeable, book: ledger.Ledger) -> None:
    for code in book.code:
        assert code.verdict in ledger.VERDICTS and bool(code.releases) is not bool(code.edited)
        book.by_digests(book.digests(code))
    book.by_files([None] * len(fix.modules))
    book.nearest([None] * len(fix.code_paths))
    book.fixed_in()
    for release, _ in book.releases():
        assert book.verdict(release) in ledger.VERDICTS
        book.may_be_affected(release)


def record_file(data: bytes) -> None:
    """A file in the folder of the records. Outcome: no record, or one that every table and the metrics page can show."""
    kind, rest = data[:1], data[1:]
    if kind < b"\x20":
        content = rest
    else:
        text = _document(rest, {
            "pid": 1, "started": 5, "host": "h", "engine": "vllm", "release": "0.19.1", "locked": False, "role": "worker",
            "rank": "TP1", "fixset": "0123456789", "attnfix": "1.0", "activated": 1.5, "server": metrics.server(),
            "fixes": [{"fix": FIXES[-1].id, "state": "installed", "reason": "", "code": None, "counters": {}}],
            "kernels": {"op": {"path": "reference", "reason": "why"}},
        })  # fmt: skip
        content = struct.pack("<8sq48x3q", process_record.MAGIC, len(text), 7, 3, 1).ljust(process_record._TEXT, b"\0") + text
    (process_record.folder() / "x.attnfix").write_bytes(content)
    processes = list(process_record.read_all())
    found = {"active": True, "attnfix": "1", "python": "p", "records": "r", "engines": [], "fixes": [], "unrecorded": []}
    found |= {"only": None, "fixset_on": "0123456789ab", "refused": None}
    found |= {"processes": processes, "warnings": status.disagreements(processes)}
    found["missing"] = list(status.missing(found))
    if processes:
        out = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace")
        output.Terminal(file=out, width=120).print(status_view.view(found, 120))
        assert out.buffer.getvalue().decode().replace("\n", "").isprintable()
        json.dumps(found)
        totals: dict[tuple[str, str], list[int]] = {}
        for process in processes:
            metrics._add(totals, process)
        metrics._families(processes, totals)


def switch_values(data: bytes) -> None:
    """Variables of the environment. Outcome: every fix has an answer, and complaints are sentences."""
    choose = atheris.FuzzedDataProvider(data)
    names = [*switches.GENERAL, *(fix.switch for fix in FIXES), "ATTNFIX_SGLANG_ZERO_KV_ROW", "PATH"]
    environ = {}
    for _ in range(choose.ConsumeIntInRange(0, 6)):
        name = names[choose.ConsumeIntInRange(0, len(names) - 1)] + choose.ConsumeUnicode(choose.ConsumeIntInRange(0, 3))
        environ[name] = choose.ConsumeUnicode(12)
    assert switches.killed(environ) in (True, False) and switches.strict(environ) in (True, False)
    assert all(switches.asked(fix, environ) in (True, False, None) for fix in FIXES)
    assert all(isinstance(sentence, str) and sentence for sentence in switches.complaints(FIXES, environ))


def launch_line(data: bytes) -> None:
    """A launch command. Outcome: LaunchError, or a launch of which every fix says whether its bug is hit."""
    choose = atheris.FuzzedDataProvider(data)
    start = ("", "vllm serve ", "sglang serve ", "A=1 python -m sglang.launch_server ")[choose.ConsumeIntInRange(0, 3)]
    known = (*WORDS, *map(json.dumps, STRANGE))
    words = [
        choose.ConsumeUnicode(20) if choose.ConsumeBool() else known[choose.ConsumeIntInRange(0, len(known) - 1)]
        for _ in range(choose.ConsumeIntInRange(0, 8))
    ]
    try:
        launch = read([start + " ".join(words)])
    except LaunchError:
        return
    deployment = Deployment(launch.engine, VERSIONS[launch.engine], launch)
    facts = diagnosis.facts(deployment, facts_of_fixes(launch.engine))
    for fix in FIXES:
        if fix.engine == launch.engine:
            assert diagnosis.answer(fix, ledger.AFFECTED, "", facts).reasons


@atheris.instrument_func
def planted(data: bytes) -> None:
    """No parser of attnfix: a fault four comparisons deep, which chance would not find: shows that it sees code."""
    if data[:1] == b"f" and data[1:2] == b"u" and data[2:3] == b"z" and data[3:4] == b"z":
        raise LookupError("planted")


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (ledger_text, record_file, switch_values, launch_line, planted)
}


def main() -> None:
    name, seconds, seed, findings = sys.argv[1:]
    seen: set[str] = set()

    def one(data: bytes) -> None:
        try:
            TARGETS[name](data)
        except Exception as error:
            frame = [*traceback.extract_tb(error.__traceback__)][-1]
            where = f"{type(error).__name__} at {Path(frame.filename).name}:{frame.lineno}"
            if where not in seen:
                seen.add(where)
                with open(findings, "a") as file:
                    file.write(json.dumps({"where": where, "error": str(error)[:200], "input": data.hex()}) + "\n")

    time.sleep = lambda seconds: None  # a reader of records looks again after a while; here nobody is just writing one
    with tempfile.TemporaryDirectory(prefix="attnfix-fuzz-") as scratch:
        os.environ["ATTNFIX_RUN_DIR"] = scratch
        options = [
            f"-max_total_time={seconds}",
            f"-seed={seed}",
            f"-max_len={MAX_LEN}",
            "-len_control=0",
            "-print_final_stats=1",
            "-rss_limit_mb=0",
        ]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
