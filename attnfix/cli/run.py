"""`attnfix run -- CMD`: attnfix for installs whose `.pth` no Python processes."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from attnfix.compat import untrusted

from .errors import CliError
from .output import complain

NAME = "run"
BRIEF = "run a command with attnfix from a folder or a volume"
HELP = (
    "Run a command with attnfix active in every Python that it starts. It is for a folder that `pip install --target` made, "
    "or a volume: no Python reads a .pth file there."
)
EXAMPLE = "attnfix run -- vllm serve deepseek-ai/DeepSeek-V2-Lite"

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as a shell has them
_PYTHON = re.compile(r"(python|pypy)[\d.]*t?")
_WITH_VALUE = "WX"  # options of Python that take the rest of the word, or the next word, as their value
_LAST = "cm"  # what follows them is the program's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- CMD ...", help="the command and its arguments")


def run(options: argparse.Namespace) -> NoReturn:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise CliError(f"run needs a command, as in `{EXAMPLE}`", 2)
    flags = python_flags(command)
    if ignored := "".join(sorted(flags & {"I", "E"})):
        complain(
            f"-{ignored} makes {command[0]} ignore PYTHONPATH: attnfix is active in it only if its own site folder "
            "holds attnfix.pth"
        )
    elif "S" in flags:
        complain(f"-S makes {command[0]} run no code at its start: attnfix is not active in it. Leave -S out.")
    _execute(command, environment(dict(os.environ)))


def environment(variables: dict[str, str]) -> dict[str, str]:
    """`variables` with the folder whose `sitecustomize` activates attnfix first on PYTHONPATH."""
    folder = Path(__file__).resolve().parents[1] / "bootstrap" / "path_entry"
    if not (folder / "sitecustomize.py").is_file() or os.pathsep in str(folder):
        raise CliError(f"{folder} is no folder that PYTHONPATH can name; unpack attnfix into one")
    given = variables.get("PYTHONPATH")
    there = given.split(os.pathsep) if given else []  # an empty entry among others is the working folder: it stays
    return variables | {"PYTHONPATH": os.pathsep.join([str(folder), *(entry for entry in there if entry != str(folder))])}


def python_flags(command: Sequence[str]) -> set[str]:
    """Letters of the options of the first Python in `command`, or of the one that its `#!` line names."""
    for words in (command, _interpreter(command[0])):
        for index, word in enumerate(words):
            if _PYTHON.fullmatch(os.path.basename(word)):
                return _flags(words[index + 1 :])
    return set()


def _flags(words: Sequence[str]) -> set[str]:
    found: set[str] = set()
    rest = iter(words)
    for word in rest:
        if not re.fullmatch(r"-[a-zA-Z].*", word):
            break
        for place, letter in enumerate(word[1:], 2):
            if letter in _LAST:
                return found
            if letter in _WITH_VALUE:
                if place == len(word):
                    next(rest, None)
                break
            found.add(letter)
    return found


def _interpreter(program: str) -> list[str]:
    """Words of a script's `#!` line; none for anything else."""
    try:
        with untrusted.opened(shutil.which(program) or program, follow=True) as descriptor:
            line = os.read(descriptor, 256).partition(b"\n")[0]
    except OSError:
        return []
    return line[2:].decode(errors="replace").split() if line.startswith(b"#!") else []


def _execute(command: Sequence[str], variables: dict[str, str]) -> NoReturn:
    """Become `command`: same process, so signals and exit code are its own."""
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and would hand that on
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    for stream in filter(None, (sys.stdout, sys.stderr)):  # closed: as it will be for the command
        stream.flush()
    try:
        os.execvpe(command[0], list(command), variables)
    except FileNotFoundError:
        raise CliError(f"{command[0]}: no such command", NOT_FOUND) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CliError(f"{command[0]} cannot be run: {reason}", NOT_EXECUTABLE) from None
