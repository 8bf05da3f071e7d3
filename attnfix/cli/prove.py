"""`attnfix prove`: its words, and what has to be installed for it. The rest is in the wheel `attnfix-prove`."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec

from packaging.requirements import Requirement

from attnfix.patches.catalogue import BY_ID

from . import completion, releases
from .errors import CliError

NAME = "prove"
BRIEF = "shows each bug in the engine's own code, and its fix"
HELP = (
    "Run the engine's own code as published (stock) and with the fix, in processes of their own, and compare both with a "
    "float64 reference."
)
EXAMPLE = "attnfix prove --engine sglang==0.5.9 --fix sglang.zero-kv-rows"

#: An extra that lacks more than so many packages was not installed: names of the rest say nothing more
_NAMED = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    engine = parser.add_argument(
        "--engine",
        action="append",
        metavar="ENGINE==RELEASE",
        help="a published release, fetched by name and never built (repeatable); default: the engines installed here",
    )
    fix = parser.add_argument("--fix", action="append", metavar="ID", help="only this fix (repeatable); default: all")
    completion.offer(engine, releases.every)
    completion.offer(fix, lambda: BY_ID)
    parser.add_argument(
        "--edit",
        action="append",
        metavar="NAME",
        help="first put a fault that no release has into a copy of the fetched release (repeatable; needs --engine, one --fix)",
    )
    parser.add_argument("--gpu", action="store_true", help="run the engine's own Triton kernels on this machine's GPU")
    parser.add_argument("--cold", action="store_true", help="start fresh interpreters: slower, and as a server starts")
    parser.add_argument("--seed", type=int, metavar="N", help="repeat a run: its seed is in --json, and beside what failed")


def run(options: argparse.Namespace) -> int:
    for named in options.engine or ():
        releases.parse(named)  # a word that is wrong is told before what is missing here
    _require("cpu" if options.engine else "prove")
    from attnfix.prove import command

    return command.run(options)


def _require(extra: str) -> None:
    """Raises CliError where something of the extra is missing: else each proof would end with a sentence on it."""
    if missing := _missing(extra):
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        names, are = ", ".join(missing[:_NAMED]) + more, "is" if len(missing) == 1 else "are"
        proofs = "proofs of a fetched release" if extra == "cpu" else "proofs"
        clone = f'in a clone: pip install ".[{extra}]" ./prove'
        raise CliError(f'{names} {are} missing: {proofs} need pip install "attnfix[{extra}]"; {clone}', 2)


def _missing(extra: str) -> list[str]:
    """Names of the packages that an extra of attnfix would bring here.

    An older or newer one than it asks for will do, for engines pin theirs; but `attnfix-prove` has to be of this version.
    """
    required = [Requirement(line) for line in requires("attnfix") or ()]
    return [each.name for each in required if each.marker and each.marker.evaluate({"extra": extra}) and _lacks(each)]


def _lacks(package: Requirement) -> bool:
    try:
        found = version(package.name)
    except PackageNotFoundError:
        name = "attnfix.prove" if package.name == "attnfix-prove" else package.name.replace("-", "_")
        return find_spec(name) is None  # one that brings the module under another name will do, and so does a clone
    return package.name == "attnfix-prove" and not package.specifier.contains(found, prereleases=True)
