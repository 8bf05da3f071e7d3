"""Writes what each release's own parser takes to `compat/doctor/options_<engine>.json`.

    python -m scripts.flags.generate [--engine vllm] [--check]

A release runs in a fork of its own, of a Python that has imported torch. In the file, beside a value stand the releases that
have it, as `0.10.0..0.12.0`; nothing beside it: all that have the option. `choices`: which options the engine's code for
attention backend, model runner and graph mode reads, and in which functions. `front`: options that never reach the model.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from attnfix.compat.doctor.engine_options import path_of
from attnfix.compat.gate import ledger
from attnfix.compat.releases import fetch
from attnfix.patches.catalogue import FIXES
from attnfix.prove import runner
from attnfix.prove.warm import Warm
from scripts.flags import choices

ROOT = Path(__file__).parents[2]
_TIMEOUT_S = 300
#: Groups of the parsers whose options are about the server around the model, but for some; and such options of other groups
_FRONT = {"Frontend", "LoggingConfig", "ObservabilityConfig", "serving", "observability"}
_NOT_FRONT = {"enable-streaming-session", "forward-hooks", "lora-modules", "strip-thinking-cache"}
_FRONT_TOO = {
    "aggregate-engine-logging", "allowed-local-media-path", "allowed-media-domains", "api-server-count", "disable-log-requests",
    "disable-log-stats", "enable-log-requests", "headless", "hf-token", "served-model-name", "tokenizer", "tokenizer-mode",
    "tokenizer-revision",
}  # fmt: skip
#: `options` of scripts/flags/parser.py
Options = Sequence[Mapping[str, Any]]


def releases(engine: str) -> list[str]:
    return [release for release, _ in ledger.load(next(fix for fix in FIXES if fix.engine == engine)).releases()]


def environment() -> dict[str, str]:
    return {
        name: text for name, text in os.environ.items() if not name.startswith(("ATTNFIX", "SGLANG_", "VLLM_"))
    } | runner.CPU


def options(engine: str, release: str, run: Callable[..., CompletedProcess[str]]) -> Options:
    """What the release's parser takes; `run` starts Python, as `Warm.run`. Raises RuntimeError with the end of its errors."""
    site = fetch.fetch(engine, release, progress=False)
    env = environment() | {"ATTNFIX": "0", "PYTHONPATH": os.pathsep.join((str(site), str(ROOT)))}
    done = run(["-m", "scripts.flags.parser", engine], env=env, cwd=str(ROOT), timeout=_TIMEOUT_S)
    lines = [line for line in done.stdout.splitlines() if line.startswith("options ")]
    if not lines:
        raise RuntimeError(f"{engine} {release}: {done.stderr[-500:]}")
    found: Options = json.loads(lines[0].removeprefix("options "))
    return found


def text(engine: str, found: Mapping[str, Options]) -> str:
    """The file of an engine: one line for each option, and for each that a choice reads; releases in their order."""
    names, named = list(found), _named(found)
    flags: dict[str, dict[str, dict[str, list[int]]]] = {}
    for at, release in enumerate(names):
        for option in found[release]:
            flag = flags.setdefault(named[release, option["names"][0]], {})
            for property, values in _properties(option).items():
                for value in values:
                    flag.setdefault(property, {}).setdefault(value, []).append(at)
    lines = [json.dumps(flag) + ": " + json.dumps(_spans(flags[flag], names)) for flag in sorted(flags)]
    rows = [json.dumps(choice) + ": {\n" + ",\n".join(read) + "\n}" for choice, read in _choices(engine, found, named)]
    return (
        f'{{"releases": {json.dumps(names)}, "options": {{\n'
        + ",\n".join(lines)
        + '\n}, "choices": {\n'
        + ",\n".join(rows)
        + f'\n}}, "front": {json.dumps(_front(found, named))}}}\n'
    )


def _front(found: Mapping[str, Options], named: Mapping[tuple[str, str], str]) -> list[str]:
    """The options that never reach the model, as the newest release that sorts them says."""
    groups = {
        named[release, option["names"][0]]: option["group"]
        for release, options in found.items()
        for option in options
        if option["group"] != "options"
    }
    front = {name for name, group in groups.items() if group in _FRONT}
    return sorted((front | (_FRONT_TOO & set(named.values()))) - _NOT_FRONT)


def _choices(
    engine: str, found: Mapping[str, Options], named: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, list[str]]]:
    """Each choice and the options that it reads, a line for each: the functions and their releases."""
    rows: dict[str, dict[str, dict[str, list[int]]]] = {}
    for at, release in enumerate(found):
        longs = {name: named[release, option["names"][0]] for option in found[release] for name in option["names"]}
        root = fetch.fetch(engine, release, progress=False) / engine
        for choice, read in choices.choices(engine, root, longs).items():
            for option, functions in read.items():
                for function in functions:
                    rows.setdefault(choice, {}).setdefault(option, {}).setdefault(function, []).append(at)
    every = list(range(len(found)))
    for choice, options in sorted(rows.items()):
        yield (
            choice,
            [
                json.dumps(option)
                + ": "
                + json.dumps({name: _span(ats, every, list(found)) for name, ats in sorted(where.items())})
                for option, where in sorted(options.items())
            ],
        )


def _properties(option: Mapping[str, Any]) -> dict[str, list[str]]:
    """Values of each property as text; the default is JSON, and null where it is no plain value."""
    return {
        "names": list(option["names"]),
        "takes": [str(option["takes"])],
        "default": [json.dumps(option["default"])],
        "choices": list(dict.fromkeys(option["choices"])),
    }


def _spans(flag: Mapping[str, Mapping[str, list[int]]], names: Sequence[str]) -> dict[str, dict[str, str]]:
    has = sorted({at for ats in flag["takes"].values() for at in ats})
    own = {property: {value: _span(sorted(set(ats)), has, names) for value, ats in flag[property].items()} for property in flag}
    own["names"] = {"": _span(has, list(range(len(names))), names), **own["names"]}
    usual = {"takes": {"value": ""}, "default": {"null": ""}, "choices": {}}
    return {property: values for property, values in own.items() if values != usual.get(property)}


def _span(ats: list[int], of: list[int], names: Sequence[str]) -> str:
    """The releases at `ats` as first..last, empty where they are all `of` them; `of` has no gaps that `ats` fills."""
    if ats == of:
        return ""
    runs: list[list[int]] = []
    for at in ats:
        if runs and of.index(at) == of.index(runs[-1][1]) + 1:
            runs[-1][1] = at
        else:
            runs.append([at, at])
    return " ".join(f"{names[first]}..{names[last]}" for first, last in runs)


def _named(found: Mapping[str, Options]) -> dict[tuple[str, str], str]:
    """(release, first name of an option) -> its name in the file: its first long name in the newest release. Two that a release
    tells apart have two."""
    chosen, named = dict[str, str](), dict[tuple[str, str], str]()
    for release in reversed(list(found)):
        taken = set()
        longs = [[name for name in option["names"] if name.startswith("--")] or option["names"] for option in found[release]]
        asked = [next((chosen[name] for name in long if name in chosen), long[0]) for long in longs]
        for option, long, name in sorted(zip(found[release], longs, asked), key=lambda row: row[1][0] != row[2]):
            name = long[0] if name in taken else name
            taken.add(name)
            named[release, option["names"][0]] = name.lstrip("-")
            for alias in long:
                chosen.setdefault(alias, name)
    return named


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("sglang", "vllm"), action="append")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    asked = parser.parse_args()
    stale = []
    with Warm(sys.executable, environment()) as warm:
        for engine in asked.engine or ("sglang", "vllm"):
            made = text(engine, {release: options(engine, release, warm.run) for release in releases(engine)})
            path = path_of(engine)
            if asked.check and path.read_text() != made:
                stale.append(path.name)
            elif not asked.check:
                path.write_text(made)
    print(f"stale: {', '.join(stale)}" if stale else "every table is as the parsers are")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
