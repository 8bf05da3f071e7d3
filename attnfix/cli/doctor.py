"""`attnfix doctor`: which known bugs a deployment would hit, before it starts. No GPU needed, no engine or torch imported."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version
from rich.text import Text

from attnfix.compat.arming import switches
from attnfix.compat.doctor import diagnosis, engine_options, gpus, running
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE, UNSEEN, Facts
from attnfix.compat.doctor.deployment import CONFIG_PATH, Deployment, read_config
from attnfix.compat.doctor.launch_command import Launch, LaunchError, Start, find, read_start
from attnfix.compat.engines import ENGINES, installed_root, version_beside
from attnfix.compat.fix import SLOWER, Fix
from attnfix.compat.gate import judge, ledger
from attnfix.compat.known_bug import KnownBug
from attnfix.patches.catalogue import BY_ID, FIXES, facts_of_fixes, known_bugs

from . import completion, releases
from .errors import CliError, no_such
from .listing import avoided, default
from .output import coloured, print_json, print_line, print_table

NAME = "doctor"
BRIEF = "before the start: which bugs would this deployment hit?"
HELP = (
    "Which known bugs a deployment would hit before it starts, and what attnfix does about each, or what you can set. "
    "Exit code 1: a bug that ends in wrong output or a crash is hit or possible, and attnfix would not correct it. "
    "A bug that no launch command decides does not count."
)
EXAMPLE = "attnfix doctor --engine sglang==0.5.9 --gpu b200 -- sglang serve --model-path /models/DeepSeek-R1 --tp 8"
#: What stands behind `--` is a launch command
LAUNCH = True

_COLOURS = {HIT: "red", POSSIBLE: "yellow", NOT_HIT: "dim"}
_HERE = "installed here"
#: Action of attnfix for a known bug, by whether there is a way around
_NO_FIX = {True: "has no fix: see the way around", False: "has no fix, and knows no way around"}
_ORDER = (HIT, POSSIBLE, NOT_HIT)
#: A correction with at least so much of the tokens/s is called free here, as the checks of `tests/gpu/serving` do
_WORTH_TELLING = 0.98


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = "config.json, its folder, or the hub's name of a model that was fetched to this machine; default: the launch's"
    parser.add_argument("model", nargs="?", metavar="MODEL_CONFIG", help=model)
    engine = parser.add_argument(
        "--engine", metavar="ENGINE==RELEASE", help="default: of the launch's image, else what is installed here"
    )
    gpu = parser.add_argument("--gpu", metavar="NAME", help="h100, b200, mi300x, sm_90, …; default: what nvidia-smi says")
    parser.add_argument("--running", action="store_true", help="an answer for each server of this machine")
    completion.offer(engine, releases.every)
    completion.offer(gpu, lambda: gpus.KNOWN)
    parser.usage = "attnfix doctor [options] [MODEL_CONFIG] [-- launch command …]"


def run(options: argparse.Namespace) -> int:
    named = releases.parse_optional(options.engine) if options.engine else None
    if options.running:
        return _run_running(options, named)
    start = _start(options.launch, named[0] if named else None)
    engine, release, source = _engine(named, start)
    launch = read_start(start, release or _installed(engine)) if start else None
    deployment = Deployment(
        engine, config=_config(options.model, launch), gpu=gpu_named(options.gpu), launch=launch, environment=os.environ
    )
    found = _answer(deployment, release, source)
    if options.json:
        print_json(found)
    else:
        _print(found)
    return _exit_code(found)


def _run_running(options: argparse.Namespace, named: tuple[str, str | None] | None) -> int:
    if options.model or options.launch:
        raise CliError("--running reads models and launch lines by itself: leave out MODEL_CONFIG and the launch command", 2)
    servers, others = running.servers()
    gpu = gpu_named(options.gpu)
    unread = [{"pid": pid, "reason": "it runs as another user: ask as that user, or as root"} for pid in others]
    found = []
    for server in servers:
        try:
            found.append(_of_server(server, named, gpu))
        except (CliError, OSError, LaunchError) as error:
            unread.append({"pid": server.pid, "reason": str(error)})
    if not found and not unread:
        raise CliError("no server of sglang or vLLM runs on this machine, as far as this user can see", 2)
    if options.json:
        print_json({"running": found, "unread": unread})
    else:
        _print_running(found, unread)
    return 1 if unread else max(map(_exit_code, found))


def _of_server(server: running.Server, named: tuple[str, str | None] | None, gpu: gpus.Gpu | None) -> dict[str, Any]:
    """Raises CliError, LaunchError or OSError with the reason why there is no answer."""
    start = find(server.command)
    engine, root = start.engine, server.package(start.engine)
    release = named[1] if named and named[0] == engine else None
    if not root and not release:
        example = releases.newest(engine)
        raise CliError(f"{ENGINES[engine].title} of its own Python was not found; name it, as in --engine {example}")
    launch = read_start(start, release or (version_beside(root) if root else None))
    launch.not_understood = [word.split()[0] for word in launch.not_understood]  # without values: they may be secrets
    config = _config_of(server, launch)
    deployment = Deployment(engine, config=config, gpu=gpu, launch=launch, environment=server.environment)
    source = "--engine" if release else "the server's own Python"
    port = launch.options.get("port", "")
    return {"pid": server.pid, "port": int(port) if port.isdecimal() else None, **_answer(deployment, release, source, root)}


def _config_of(server: running.Server, launch: Launch) -> Any:
    """config.json of the server's model, in its folder or its hub cache; None where it is not there, or cannot be read."""
    model = launch.options.get(CONFIG_PATH) or launch.model or ""
    try:
        path = server.path(model) / "config.json"
        if not os.path.isfile(path):
            path = _fetched(model, server.hub(launch.options.get("download-dir"))) or path
        return read_config(path) if model else None
    except (OSError, ValueError):
        return None


def _print_running(found: list[dict[str, Any]], unread: list[dict[str, Any]]) -> None:
    for server in found:
        port = f", port {server['port']}" if server["port"] else ""
        _print(server, f"Server {server['pid']}{port}: ")
    for server in unread:
        print_line(f"Server {server['pid']} was not read: {server['reason']}.")


def _answer(deployment: Deployment, release: str | None, source: str, root: Path | None = None) -> dict[str, Any]:
    """All that is said of one deployment; `source` tells where the release comes from. `root`: as in `examine`."""
    verdicts, name = _verdicts(deployment.engine, release, root)
    deployment = replace(deployment, release=_version(name))
    facts = diagnosis.facts(deployment, facts_of_fixes(deployment.engine))
    rows, known = _rows(verdicts, deployment, facts), _known_rows(deployment, facts, _is_release(name, verdicts))
    launch = deployment.launch
    return {
        "engine": deployment.engine,
        "release": name,
        "release_from": source,
        "gpu": str(deployment.gpu) if deployment.gpu else None,
        "architecture": deployment.architecture(),
        **_counts(rows, known),
        "fixes": rows,
        "known": known,
        "not_understood": launch.not_understood if launch else [],
        "not_read": launch.not_read if launch else [],
        "uncovered": _uncovered(launch) if launch else [],
    }


def _exit_code(found: dict[str, Any]) -> int:
    left = [row for row in _applying(found["fixes"]) if not row["corrected"]]
    left += [row for row in _applying(found["known"]) if not _waits(row)]
    return 1 if any(row["harm"] != SLOWER for row in left) else 0


def _waits(row: dict[str, Any]) -> bool:
    """Whether a known bug is possible, and the launch cannot tell all of it."""
    return row["verdict"] == POSSIBLE and any(reason.endswith(UNSEEN) for reason in row["reasons"])


def _applying(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if row["verdict"] != NOT_HIT]


def _counts(rows: list[dict[str, Any]], known: list[dict[str, Any]]) -> dict[str, int]:
    """Bugs, hit or possible, that attnfix corrects as configured; of the others those with a way around; the rest."""
    left = [BY_ID[row["fix"]].avoidable for row in _applying(rows) if not row["corrected"]]
    corrected = len(_applying(rows)) - len(left)
    left += [row["avoidable"] for row in _applying(known)]
    return {"corrected": corrected, "way_around": sum(left), "neither": len(left) - sum(left)}


def _uncovered(launch: Launch) -> list[str]:
    """Options of the launch that may reach the model, and that no fact of the engine ever reads."""
    engine = launch.engine
    covered = diagnosis.options_read(engine, facts_of_fixes(engine), known_bugs(engine)) | engine_options.in_front(engine)
    given = dict.fromkeys(name.partition(".")[0] for name in launch.options)
    return [f"--{name}" for name in given if name not in covered]


def examine(deployment: Deployment, release: str | None) -> list[dict[str, Any]]:
    """A row for each fix, hits first; release None: what is installed here."""
    verdicts, name = _verdicts(deployment.engine, release, None)
    deployment = replace(deployment, release=_version(name))
    return _rows(verdicts, deployment, diagnosis.facts(deployment, facts_of_fixes(deployment.engine)))


def _rows(verdicts: dict[Fix, tuple[str, str]], deployment: Deployment, facts: Facts) -> list[dict[str, Any]]:
    rows = [_row(fix, diagnosis.answer(fix, *code, facts), code[0], deployment, facts) for fix, code in verdicts.items()]
    return sorted(rows, key=lambda row: _ORDER.index(row["verdict"]))


def _known_rows(deployment: Deployment, facts: Facts, exact: bool) -> list[dict[str, Any]]:
    """A row for each bug that no fix corrects, hits first. `exact`: the code is that of the release, not only its number."""
    rows = [_known_row(bug, deployment, facts, exact) for bug in known_bugs(deployment.engine)]
    return sorted(rows, key=lambda row: _ORDER.index(row["verdict"]))


def _is_release(name: str | None, verdicts: dict[Fix, tuple[str, str]]) -> bool:
    """Whether the gate knows all of the code that it knows in the release of that name."""
    unknown = [fix for fix, (verdict, _) in verdicts.items() if verdict == ledger.UNKNOWN]
    return name is not None and all(ledger.load(fix).verdict(name) == ledger.UNKNOWN for fix in unknown)


def _known_row(bug: KnownBug, deployment: Deployment, facts: Facts, exact: bool) -> dict[str, Any]:
    answer = diagnosis.of_known(bug, deployment.release, facts)
    by_number = (
        () if exact or answer.verdict == NOT_HIT else ("release: by version only, since the code is that of no release",)
    )
    return {
        "bug": bug.id,
        "verdict": answer.verdict,
        "harm": bug.harm,
        "title": bug.title,
        "symptom": bug.symptom,
        "avoidable": bug.avoidable,
        "avoid": bug.avoid,
        "links": list(bug.upstream.links.values()),
        "reasons": [*by_number, *answer.reasons],
    }


def _start(words: list[str] | None, engine: str | None) -> Start | None:
    try:
        return find(words, engine) if words else None
    except LaunchError as error:
        hint = f'; for what is in the file: -- "$(cat {words[0]})"' if words and os.path.isfile(words[0]) else ""
        raise CliError(f"{error}{hint}", 2) from error


def _installed(engine: str) -> str | None:
    root = installed_root(ENGINES[engine])
    return version_beside(root) if root else None


def _engine(named: tuple[str, str | None] | None, launch: Start | None) -> tuple[str, str | None, str]:
    """Engine, release, and where the release comes from; release None: what is installed here."""
    engine, release = named or (None, None)
    if launch and engine not in (None, launch.engine):
        raise CliError(f"--engine names {engine}, but the launch command starts {launch.engine}", 2)
    engine, image = launch.engine if launch else engine, launch.image if launch else None
    if engine and release:
        other = image if image and image.release not in (None, release) else None
        return engine, release, f"--engine, not image {other.name}" if other else "--engine"
    if engine and image:
        if image.release is None:
            example = releases.newest(engine)
            raise CliError(f"the image {image.name} does not say its release; name it, as in --engine {example}", 2)
        return engine, image.release, f"image {image.name}"
    return engine or releases.here("--engine "), None, _HERE


def _verdicts(engine: str, release: str | None, root: Path | None) -> tuple[dict[Fix, tuple[str, str]], str | None]:
    """(verdict on the code, where it comes from) of each fix, and the release."""
    fixes = [fix for fix in FIXES if fix.engine == engine]
    if release:
        books = {fix: ledger.load(fix) for fix in fixes}
        release = releases.judged(engine, release, books.values())
        return {fix: (book.verdict(release), f"{engine} {release}") for fix, book in books.items()}, release
    root = root or installed_root(ENGINES[engine])
    if root is None:
        raise CliError(f"no {engine} is installed here; name a release, as in --engine {releases.newest(engine)}", 2)
    judged = {fix: judge.judge(fix, root) for fix in fixes}
    return {fix: (verdict.kind, verdict.reason) for fix, verdict in judged.items()}, version_beside(root)


def _version(name: str | None) -> Version | None:
    try:
        return Version(Version(name).public) if name else None
    except InvalidVersion:
        return None


def _config(named: str | None, launch: Launch | None) -> Any:
    """The config.json of --hf-config-path; without that the one named, else that of the launch's model, if it is here."""
    other = launch.options.get(CONFIG_PATH) if launch else None
    named = None if other else named
    model = other or named or (launch.model if launch else None)
    if not model:
        return None
    path = Path(model)
    if not os.path.exists(path):  # `Path.exists` raises for a name that is too long
        path = _fetched(model) or path
    elif not named:
        path /= "config.json"
    if not named and not os.path.isfile(path):
        return None
    try:
        return read_config(path)
    except FileNotFoundError as error:
        raise CliError(_not_here(model), 2) from error
    except (OSError, ValueError) as error:
        raise CliError(f"{path} cannot be read as a model's config.json: {error}", 2) from error


def _not_here(model: str) -> str:
    if re.fullmatch(r"[\w.-]+/[\w.-]+", model) and not model.startswith("."):
        address = f"https://huggingface.co/{model}/resolve/main/config.json"
        return f"{model} was not fetched to this machine; give its config.json, as in: curl -LO {address}"
    return f"{model} is no file, no folder with a config.json, and no model that was fetched to this machine"


def _fetched(model: str, cache: Path | None = None) -> Path | None:
    """config.json of a model that was fetched from the Hugging Face hub before, by its name there. Fetches nothing.

    `cache`: the hub's folder, else that of this environment.
    """
    try:
        from huggingface_hub import try_to_load_from_cache  # engines have it

        found = try_to_load_from_cache(model, "config.json", cache_dir=cache)
    except (ImportError, ValueError):  # not installed; no name of a model
        return None
    return Path(found) if isinstance(found, str) else None


def gpu_named(name: str | None) -> gpus.Gpu | None:
    """Raises CliError for a name that is not known; without a name, the GPU of this machine."""
    if not name:
        return gpus.here()
    gpu = gpus.named(name)
    if gpu is None:
        raise no_such("GPU attnfix knows", name, gpus.KNOWN)
    return gpu


def _row(fix: Fix, answer: Any, code: str, deployment: Deployment, facts: Facts) -> dict[str, Any]:
    action, corrected = _action(fix, code, deployment)
    if corrected and fix.stays_out and (out := fix.stays_out(facts)).verdict != NOT_HIT:
        action, corrected = f"{'leaves' if out.verdict == HIT else 'may leave'} it alone: {out.reasons[0]}", False
    return {
        "fix": fix.id,
        "verdict": answer.verdict,
        "harm": fix.harm,
        "corrected": corrected,
        "attnfix": action if answer.verdict != NOT_HIT else "-",
        "default": default(fix),
        "switch": fix.switch,
        "symptom": fix.symptom,
        "avoid": fix.avoid,
        "cost": fix.cost,
        "worst_cost": fix.worst_cost and fix.worst_cost._asdict(),
        "reasons": list(answer.reasons),
    }


def _action(fix: Fix, code: str, deployment: Deployment) -> tuple[str, bool]:
    """What attnfix, installed beside that engine, does about the bug; and whether that corrects it."""
    variables = dict(deployment.variables())
    asked = switches.asked(fix, variables)
    if code == ledger.UNKNOWN:
        return "leaves unknown code alone", False
    if switches.killed(variables):
        return "off: ATTNFIX=0", False
    if not ENGINES[fix.engine].admits_us(variables):
        return f"left out by {ENGINES[fix.engine].allow_list}", False
    if asked is False:
        return f"off: {fix.switch}=0", False
    if refusal := switches.refused(FIXES, variables):
        return f"off: {refusal.reason}", False
    restricted = switches.only(variables) is not None
    if why := switches.left_off(fix, variables):
        return f"off: {why}" if restricted else why, False
    if switches.observing(variables):
        return "observes only (ATTNFIX=observe)" + (", and not this bug" if fix.unobservable else ""), False
    how = f"{fix.switch}=1" if asked else "named in ATTNFIX_ONLY" if restricted else "on by default"
    return f"corrects it ({how})", True


def _verdict(row: dict[str, Any]) -> Text:
    return coloured(row["verdict"], _COLOURS[row["verdict"]])


def _print(found: dict[str, Any], before: str = "") -> None:
    """One answer; `before` stands before its first line."""
    where = ", ".join((found["gpu"] or "unknown GPU", found["architecture"] or "unknown model"))
    source = "" if found["release_from"] == "--engine" else f" ({found['release_from']})"
    title = f"{found['engine']} {found['release'] or '(no version)'}{source}; {where}"
    shown, known = _applying(found["fixes"]), _applying(found["known"])
    print_line(before + _headline(found))
    if shown or known:
        rows = [(row["fix"], _verdict(row), row["harm"], row["attnfix"]) for row in shown]
        rows += [(row["bug"], _verdict(row), row["harm"], _NO_FIX[row["avoidable"]]) for row in known]
        print_table(title, ("bug", "verdict", "harm", "attnfix"), rows)
    else:
        print_line(title)
    if not shown and all(map(_waits, known)):
        _print_nearest(found["fixes"])
    for row in shown:
        print_line(f"{row['fix']}:", _verdict(row))
        for reason in row["reasons"]:
            print_line(f"    {reason}")
        worst = BY_ID[row["fix"]].worst_cost
        if row["corrected"] and worst and worst.tokens < _WORTH_TELLING:
            print_line(f"    cost of the correction: {worst}")
        if without := avoided(BY_ID[row["fix"]]):
            print_line(f"    without attnfix: {without}")
    for row in known:
        print_line(f"{row['bug']}:", _verdict(row))
        without = f"way around: {row['avoid']}" if row["avoidable"] else row["avoid"]
        for text in (row["title"], *row["reasons"], without):
            print_line(f"    {text}")
    if found["uncovered"]:
        print_line(f"attnfix knows no bug around: {', '.join(found['uncovered'])}; that is no proof that there is none.")
    if found["not_understood"]:
        words, engine, release = ", ".join(found["not_understood"]), found["engine"], found["release"]
        typed = release in engine_options.releases(engine)
        server = f"{engine} {release} would refuse to start" if typed else "No release that attnfix knows takes them"
        print_line(f"Unknown options: {words}. If one may matter, a reason above names it. {server}.")
    if found["not_read"]:
        print_line(f"Not read: {', '.join(found['not_read'])}")
    if shown or known:
        print_line("Next: `attnfix explain BUG` tells all of one; `attnfix prove --fix FIX` shows it on this machine.")
    elif before:
        print_line("Next: `attnfix status` says what is patched; if answers are wrong all the same, `attnfix probe URL` asks.")
    else:
        print_line("Next: if answers are wrong all the same, `attnfix probe URL` asks your server.")


def _print_nearest(rows: list[dict[str, Any]]) -> None:
    """The bugs of this release that a single fact rules out, where no bug applies: a launch line is easily pasted in part."""
    rows = [row for row in rows if row["harm"] != SLOWER and len(row["reasons"]) == 1]
    nearest = [row for row in rows if not row["reasons"][0].startswith(("code: ", "GPU: "))]
    if nearest:
        print_line("Is each of these so on your server? It alone rules out a bug of this release:")
    for row in nearest:
        print_line(f"    {row['fix']}: {row['reasons'][0]}")


def _headline(found: dict[str, Any]) -> str:
    """How many bugs apply, and for how many of them there is help."""
    verdicts = [row["verdict"] for row in (*found["fixes"], *found["known"])]
    checked, hit, possible = len(verdicts), verdicts.count(HIT), verdicts.count(POSSIBLE)
    if not hit + possible:
        return f"No known bug applies ({checked} checked; --json says why of each)."
    bugs = "1 bug" if (hit or possible) == 1 else f"{hit or possible} bugs"
    told = f"{bugs} hit" + (f", {possible} possible" if possible else "") if hit else f"{bugs} possible"
    return (
        f"{told}: {found['corrected']} corrected by attnfix, {found['way_around']} with a way around, "
        f"{found['neither']} with neither ({checked} checked; --json says why of each)."
    )
