"""`attnfix status --metrics`: what many replicas say of their fixes on the metrics pages of their engines."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener

from packaging.version import InvalidVersion, Version

from attnfix.compat import untrusted
from attnfix.compat.fix import Fix
from attnfix.compat.status import fix_state, messages, metrics_page
from attnfix.compat.status.recorder import fixset_name, observed_name
from attnfix.patches.catalogue import BY_ID
from attnfix.probe.deadline import Deadline

from .errors import CliError

_TIMEOUT_S = 10  # for a whole page
_LATE = f"no whole page within {_TIMEOUT_S} s"
_SENTENCE = 200  # letters of an error, of which a server may have written most
_SAMPLES = 20_000  # of attnfix on a page
_LIMIT = 16 << 20  # bytes of a page
_AT_ONCE = 32  # requests
_STANDS = frozenset({fix_state.INSTALLED, fix_state.EFFECTIVE})
_COUNTERS = ("calls", "corrections", "rows")
#: What is to be said of a replica, the worst first
UNREACHABLE, SILENT, MISSING, BEHIND, FINE = "unreachable", "no attnfix", "missing", "behind", "fine"
OBSERVES = "observes"


# Which pages


def addresses(words: Sequence[str]) -> list[str]:
    """The pages that the words name, each once: addresses, or files with an address on each line."""
    found = chain.from_iterable(map(_named, words))
    return list(dict.fromkeys(found))


def _named(word: str) -> Iterator[str]:
    path = Path(word)
    if "://" in word or not path.is_file():
        yield _address(word)
        return
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CliError(f"{word} cannot be read: {error}", 2) from error
    for line in lines:
        if text := line.partition("#")[0].strip():
            yield _address(text)


def _address(text: str) -> str:
    """`host:8000` is the page there. A word without port and scheme is rather a file that is not there."""
    whole = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(whole)
        sound = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        sound = False
    sound = sound and ("://" in text or parts.port)
    if not sound or re.search(r"\s", whole):
        raise CliError(f"{text!r} is neither a file nor the address of a metrics page, as in http://replica:8000/metrics", 2)
    return whole if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}/metrics"


# What they say


def collect(pages: Sequence[str]) -> dict[str, Any]:
    """Everything `attnfix status --metrics … --json` prints."""
    import attnfix

    with ThreadPoolExecutor(min(_AT_ONCE, len(pages))) as pool:
        replicas = list(pool.map(_replica, pages))
    _compare(replicas)
    for replica in replicas:
        replica["verdict"] = _verdict(replica)
    return {
        "attnfix": attnfix.__version__,
        "replicas": replicas,
        "missing": [sentence for replica in replicas for sentence in replica["missing"]],
        "warnings": [*_unreachable(replicas), *_torn(replicas), *_versions(replicas), *_disagreements(replicas)],
    }


def exit_code(found: dict[str, Any], missing: int) -> int:
    """`missing` where a replica is without a fix that it needs, 1 where one could not be asked."""
    if found["missing"]:
        return missing
    return 1 if any(replica["error"] for replica in found["replicas"]) else 0


def _replica(url: str) -> dict[str, Any]:
    try:
        return _read(url, _page(url))
    except (OSError, HTTPException, ValueError) as error:  # what urllib, a socket, and a name that is none raise
        reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        return _read(url, "") | {"error": untrusted.line(reason[:_SENTENCE]), "missing": []}


def _page(url: str) -> str:
    """Raises OSError, HTTPException or ValueError where none comes in time, or it is larger than any page of an engine."""
    request = Request(url, headers={"Accept": "text/plain;version=0.0.4"})
    with Deadline(_TIMEOUT_S) as deadline:
        try:
            with build_opener(*_watched(deadline)).open(request, timeout=_TIMEOUT_S) as response:
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise ValueError("the page is compressed, though that was not asked for")
                data = response.read(_LIMIT + 1)
        except (OSError, HTTPException) as error:
            if deadline.over:
                raise TimeoutError(_LATE) from error
            raise
        if deadline.over:  # what has no length of its own seems whole
            raise TimeoutError(_LATE)
    if len(data) > _LIMIT:
        raise ValueError(f"the page is larger than {_LIMIT} bytes")
    text: str = data.decode(errors="replace")
    return text


def _watched(deadline: Deadline) -> tuple[HTTPHandler, HTTPSHandler]:
    """Handlers whose connections end with the deadline: each is watched from its first moment on, before TLS takes it."""

    class Watched:
        _sock: Any = None

        @property
        def sock(self) -> Any:
            return self._sock

        @sock.setter
        def sock(self, value: Any) -> None:
            if value is not None and self._sock is None:
                deadline.watch(value)
            self._sock = value

    class Plain(Watched, HTTPConnection): ...

    class Secure(Watched, HTTPSConnection): ...

    class ToPlain(HTTPHandler):
        def http_open(self, request: Request) -> Any:
            return self.do_open(Plain, request)

    class ToSecure(HTTPSHandler):
        def https_open(self, request: Request) -> Any:
            return self.do_open(Secure, request)

    return ToPlain(), ToSecure()


def _read(url: str, page: str) -> dict[str, Any]:
    """One replica, as far as its own page tells."""
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    counted: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_COUNTERS, 0))
    versions: set[str] = set()
    engines: set[str] = set()
    refused: set[str] = set()
    processes = observing = 0
    for number, (name, labels, value) in enumerate(metrics_page.samples(page)):
        if number == _SAMPLES:
            raise ValueError(f"the page has more than {_SAMPLES} lines of attnfix")
        if name in ("attnfix_processes", "attnfix_observing_processes"):
            versions.add(labels["attnfix"])
            engines.add(f"{labels['engine']} {labels['release'] or '(no version)'}")
            count = int(value) if math.isfinite(value) else 0
            processes += count
            observing += count if name == "attnfix_observing_processes" else 0
        elif name == "attnfix_refused_processes":
            refused.add(labels["reason"])
        elif name == "attnfix_fix_info":
            key = labels["engine"], labels["release"], labels["fix"]
            row = rows.setdefault(key, {"fix": key[2], "engine": key[0], "release": key[1], "states": []})
            row["states"].append(labels["state"])
        elif math.isfinite(value) and not name.startswith("attnfix_observed_"):
            counted[labels["fix"]][name.removeprefix("attnfix_").removesuffix("_total")] += int(value)
    for row in rows.values():
        row |= {"stands": _stands(row), "counters": counted[row["fix"]]}
    version = max(versions, key=_order) if versions else None
    standing = [row["fix"] for row in rows.values() if row["stands"]]
    standing += [observed_name(row["fix"]) for row in rows.values() if fix_state.OBSERVED in row["states"]]
    fixes = list(rows.values())
    return {
        "url": url,
        "error": None,
        "attnfix": version or None,
        "engines": sorted(engines),
        "processes": processes,
        "observing": observing,
        "fixset": fixset_name(version, standing) if version is not None else None,
        "fixes": fixes,
        "behind": False,
        "missing": [
            *(f"{url}: nothing is armed: {why}" for why in sorted(refused)),
            *_missing(url, () if 0 < observing == processes else fixes, bool(versions)),
        ],
    }


def _stands(row: dict[str, Any]) -> bool:
    return bool(_STANDS & {*row["states"]}) and not {*row["states"]} & fix_state.MISSING


def _missing(url: str, fixes: Iterable[dict[str, Any]], active: bool) -> Iterator[str]:
    if not active:
        yield f"{url}: its metrics page has no attnfix series: not installed there, or ATTNFIX=0"
    for row in fixes:
        for state in row["states"]:
            if state in fix_state.MISSING or (state == fix_state.UNKNOWN_SOURCE and _in_doubt(row)):
                yield f"{row['fix']} is missing on {url}: {state}"


def _in_doubt(row: dict[str, Any]) -> bool:
    """As in `attnfix status`. A fix that has been called knows the code, and leaves alone a kernel that it does not know."""
    fix: Fix | None = BY_ID.get(row["fix"])
    if fix is None or row["counters"]["calls"]:
        return False
    doubtful: bool = messages.in_doubt(fix_state.FixState(fix), row["release"] or None)
    return doubtful


# What they say together


def _compare(replicas: Iterable[dict[str, Any]]) -> None:
    """Tell which replicas run an older attnfix than another, and lack a fix for it that stands there on the same release."""
    told = [replica for replica in replicas if replica["attnfix"]]
    newest = max((_order(replica["attnfix"]) for replica in told), default=None)
    for replica in told:
        mine = _order(replica["attnfix"])
        replica["behind"] = mine != newest
        has = {row["fix"] for row in replica["fixes"]}
        ahead = [other for other in told if _order(other["attnfix"]) > mine and other["engines"] == replica["engines"]]
        lacks = {row["fix"]: other for other in ahead for row in other["fixes"] if row["stands"] and row["fix"] not in has}
        replica["missing"] += [
            f"{fix} is missing on {replica['url']}: attnfix {replica['attnfix']} there does not have it in place, and "
            f"{other['attnfix']} has it on {other['url']}"
            for fix, other in sorted(lacks.items(), key=lambda each: each[0])
        ]


def _order(version: str) -> tuple[bool, Version, str]:
    try:
        return True, Version(version), version
    except InvalidVersion:
        return False, Version("0"), version


def _verdict(replica: dict[str, Any]) -> str:
    if replica["error"]:
        return UNREACHABLE
    if not replica["processes"] and not replica["fixes"]:
        return SILENT
    if 0 < replica["observing"] == replica["processes"] and not replica["missing"]:
        return OBSERVES
    return MISSING if replica["missing"] else BEHIND if replica["behind"] else FINE


def _unreachable(replicas: list[dict[str, Any]]) -> Iterator[str]:
    yield from (f"{replica['url']} could not be asked: {replica['error']}" for replica in replicas if replica["error"])


def _torn(replicas: list[dict[str, Any]]) -> Iterator[str]:
    told = "of its processes observe, and the others correct: give all of them the same ATTNFIX"
    for replica in replicas:
        if 0 < replica["observing"] < replica["processes"]:
            yield f"{replica['url']}: {replica['observing']} of {replica['processes']} {told}"


def _versions(replicas: list[dict[str, Any]]) -> Iterator[str]:
    found = Counter(replica["attnfix"] for replica in replicas if replica["attnfix"])
    if len(found) > 1:
        names = [f"{version} ({count})" for version, count in sorted(found.items(), key=lambda each: _order(each[0]))]
        yield f"the replicas run attnfix {' and '.join(names)}"


def _disagreements(replicas: list[dict[str, Any]]) -> Iterator[str]:
    """One sentence for each fix that stands on one replica of a release and was seen on another where it does not; those that
    observe are meant to have none."""
    replicas = [replica for replica in replicas if replica["verdict"] != OBSERVES]
    seen: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for replica in replicas:
        for row in replica["fixes"]:
            seen[row["engine"], row["release"], row["fix"]].append(row["stands"])
    for (engine, release, fix), stands in sorted(seen.items()):
        if 0 < sum(stands) < len(stands):
            where = f"{engine} {release or '(no version)'}"
            asked = sum(where in replica["engines"] for replica in replicas)
            yield f"replicas of {where} disagree: {fix} is installed on {sum(stands)} of {asked}"
