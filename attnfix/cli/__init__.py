"""The command line, `attnfix COMMAND`: one module per command. Each takes --json; results go to standard output."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from attnfix.compat.ledger import LedgerError

from . import bench, doctor, explain, forecast, listing, prove, report, run, status, verdict
from .errors import CliError, no_such

_MODULES = (listing, explain, doctor, status, report, verdict, forecast, prove, run, bench)
COMMANDS = {module.NAME: module for module in _MODULES}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 fine, 1 a result that is not, 2 bad arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _never_fail_on_a_character()
    try:
        options = parse(arguments)
        code = options.run(options)
        sys.stdout.flush()
        return code
    except (CliError, LedgerError) as error:
        print(f"attnfix: {error}", file=sys.stderr)
        return getattr(error, "code", 1)
    except BrokenPipeError:  # `attnfix list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at exit
        return 0
    except KeyboardInterrupt:
        print("attnfix: interrupted", file=sys.stderr)
        return 130


def _never_fail_on_a_character() -> None:
    """Paths and records may hold characters that the output cannot: those are escaped."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a caller may have put anything there
            stream.reconfigure(errors="backslashreplace")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises CliError, and what argparse does. What stands behind `--` goes to `launch`, where the command takes a launch line:
    argparse would take its first word for an argument of ours."""
    words = list(arguments)
    command = _command(words)
    launch: list[str] = []
    if hasattr(COMMANDS.get(command or ""), "LAUNCH") and "--" in words:
        at = words.index("--")
        words, launch = words[:at], words[at + 1 :]
    return parser().parse_args(words, argparse.Namespace(launch=launch))


def parser() -> argparse.ArgumentParser:
    """All commands. Each module has NAME, HELP, EXAMPLE (a line to type), add_arguments and run."""
    whole = argparse.ArgumentParser(
        prog="attnfix", description="Hotfixes for the attention backends of installed sglang and vLLM releases."
    )
    whole.add_argument("--version", action="version", version=f"attnfix {_version()}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name, help=module.HELP, description=module.HELP, epilog=f"example: {module.EXAMPLE}"
        )
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return whole


def _command(arguments: Sequence[str]) -> str | None:
    """argparse would answer a misspelt command with the list of all and no word on which was meant."""
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        raise no_such("command", word, COMMANDS)
    return word


def _version() -> str:
    import attnfix

    return attnfix.__version__
