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
from attnfix.compat.doctor import diagnosis, gpus
from attnfix.compat.doctor.condition import HIT, NOT_HIT, POSSIBLE
from attnfix.compat.doctor.deployment import Deployment, read_config
from attnfix.compat.doctor.launch_command import Launch, LaunchError, read
from attnfix.compat.engines import ENGINES, installed_root, version_beside
from attnfix.compat.fix import SLOWER, Fix
from attnfix.compat.gate import judge, ledger
from attnfix.patches.catalogue import BY_ID, FIXES, facts_of_fixes

from . import completion, releases
from .errors import CliError, no_such
from .listing import avoided, default
from .output import coloured, print_json, print_line, print_table

NAME = "doctor"
BRIEF = "before the start: which bugs would this deployment hit?"
HELP = (
    "Which known bugs a deployment would hit before it starts, and what attnfix does about each. "
    "Exit code 1: a bug that ends in wrong output or a crash is hit or possible, and attnfix would not correct it."
)
EXAMPLE = "attnfix doctor --engine sglang==0.5.9 --gpu b200 -- sglang serve --model-path /models/DeepSeek-R1 --tp 8"
#: What stands behind `--` is a launch command
LAUNCH = True

_COLOURS = {HIT: "red", POSSIBLE: "yellow", NOT_HIT: "dim"}
_HERE = "installed here"
_ORDER = (HIT, POSSIBLE, NOT_HIT)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model = "config.json, its folder, or the hub's name of a model that was fetched to this machine; default: the launch's"
    parser.add_argument("model", nargs="?", metavar="MODEL_CONFIG", help=model)
    engine = parser.add_argument(
        "--engine", metavar="ENGINE==RELEASE", help="default: of the launch's image, else what is installed here"
    )
    gpu = parser.add_argument("--gpu", metavar="NAME", help="h100, b200, mi300x, sm_90, …; default: what nvidia-smi says")
    completion.offer(engine, releases.every)
    completion.offer(gpu, lambda: gpus.KNOWN)
    parser.usage = "attnfix doctor [options] [MODEL_CONFIG] [-- launch command …]"


def run(options: argparse.Namespace) -> int:
    named = releases.parse_optional(options.engine) if options.engine else None
    launch = _launch(options.launch, named[0] if named else None)
    engine, release, source = _engine(named, launch)
    deployment = Deployment(
        engine, config=_config(options.model, launch), gpu=gpu_named(options.gpu), launch=launch, environment=os.environ
    )
    rows, name = examine(deployment, release)
    found = {
        "engine": engine,
        "release": name,
        "release_from": source,
        "gpu": str(deployment.gpu) if deployment.gpu else None,
        "architecture": deployment.architecture(),
        "fixes": rows,
        "not_understood": launch.not_understood if launch else [],
        "not_read": launch.not_read if launch else [],
    }
    if options.json:
        print_json(found)
    else:
        _print(found)
    return 1 if any(row["verdict"] != NOT_HIT and row["harm"] != SLOWER and not row["corrected"] for row in rows) else 0


def examine(deployment: Deployment, release: str | None) -> tuple[list[dict[str, Any]], str | None]:
    """A row for each fix, hits first, and the release; release None: what is installed here."""
    verdicts, name = _verdicts(deployment.engine, release)
    deployment = replace(deployment, release=_version(name))
    facts = diagnosis.facts(deployment, facts_of_fixes(deployment.engine))
    rows = [_row(fix, diagnosis.answer(fix, *code, facts), code[0], deployment) for fix, code in verdicts.items()]
    return sorted(rows, key=lambda row: _ORDER.index(row["verdict"])), name


def _launch(words: list[str] | None, engine: str | None) -> Launch | None:
    try:
        return read(words, engine) if words else None
    except LaunchError as error:
        raise CliError(str(error), 2) from error


def _engine(named: tuple[str, str | None] | None, launch: Launch | None) -> tuple[str, str | None, str]:
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


def _verdicts(engine: str, release: str | None) -> tuple[dict[Fix, tuple[str, str]], str | None]:
    """(verdict on the code, where it comes from) of each fix, and the release."""
    fixes = [fix for fix in FIXES if fix.engine == engine]
    if release:
        books = {fix: ledger.load(fix) for fix in fixes}
        release = releases.judged(engine, release, books.values())
        return {fix: (book.verdict(release), f"{engine} {release}") for fix, book in books.items()}, release
    root = installed_root(ENGINES[engine])
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
    """The model's config.json: the one named, else that of the launch's model, if it is here."""
    model = named or (launch.model if launch else None)
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


def _fetched(model: str) -> Path | None:
    """config.json of a model that was fetched from the Hugging Face hub before, by its name there. Fetches nothing."""
    try:
        from huggingface_hub import try_to_load_from_cache  # engines have it

        found = try_to_load_from_cache(model, "config.json")
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


def _row(fix: Fix, answer: Any, code: str, deployment: Deployment) -> dict[str, Any]:
    action, corrected = _action(fix, code, deployment)
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
    how = f"{fix.switch}=1" if asked else "named in ATTNFIX_ONLY" if restricted else "on by default"
    return f"corrects it ({how})", True


def _verdict(row: dict[str, Any]) -> Text:
    return coloured(row["verdict"], _COLOURS[row["verdict"]])


def _print(found: dict[str, Any]) -> None:
    where = ", ".join((found["gpu"] or "unknown GPU", found["architecture"] or "unknown model"))
    source = "" if found["release_from"] == "--engine" else f" ({found['release_from']})"
    title = f"{found['engine']} {found['release'] or '(no version)'}{source}; {where}"
    shown = [row for row in found["fixes"] if row["verdict"] != NOT_HIT]
    if shown:
        rows = ((row["fix"], _verdict(row), row["harm"], row["attnfix"]) for row in shown)
        print_table(title, ("fix", "verdict", "harm", "attnfix"), rows)
    else:
        print_line(title)
    for row in shown:
        print_line(f"{row['fix']}:", _verdict(row))
        for reason in row["reasons"]:
            print_line(f"    {reason}")
        if without := avoided(BY_ID[row["fix"]]):
            print_line(f"    without attnfix: {without}")
    checked = len(found["fixes"])
    if shown:
        print_line(f"not hit: {checked - len(shown)} of {checked} bugs; --json says why of each")
    else:
        print_line(f"No known bug applies ({checked} checked; --json says why of each).")
    if found["not_understood"]:
        print_line(f"Unknown options: {', '.join(found['not_understood'])}. If one may matter, a reason above names it.")
    if found["not_read"]:
        print_line(f"Not read: {', '.join(found['not_read'])}")
    if shown:
        print_line("Next: `attnfix explain FIX` tells all of one; `attnfix prove --fix FIX` shows it on this machine.")
    else:
        print_line("Next: if answers are wrong all the same, `attnfix probe URL` asks your server.")
