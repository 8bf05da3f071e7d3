"""The command line, `attnfix COMMAND`: one module per command. Each takes --json; results go to standard output.

`attnfix` alone says what it finds here and what to do next.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from attnfix.compat.gate.ledger import LedgerError

from . import (
    bench,
    bug_report,
    completion,
    doctor,
    explain,
    forecast,
    known,
    listing,
    output,
    overview,
    probe,
    prove,
    run,
    status,
    verdict,
)
from .errors import CliError, no_such

_MODULES = (listing, known, explain, doctor, status, bug_report, verdict, forecast, prove, probe, run, bench)
COMMANDS = {module.NAME: module for module in _MODULES}
#: Options that are typed as commands
_SPOKEN = ("help", "version")
_OPTIONS = ("-h", "--help", "-V", "--version")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 fine, 1 a result that is not, 2 bad arguments, 3 a fix that is needed is missing."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if completion.asked():
        return completion.answer(parser())
    _have_streams()
    try:
        if sys.stdout is None and arguments[:1] != [run.NAME]:  # its command takes its place, and what is closed
            raise output.Unwritable("standard output is closed")
        return _run(arguments)
    except output.Unwritable as error:
        output.drop(sys.stdout)
        output.complain(str(error))
        return error.code
    except KeyboardInterrupt:
        output.complain("interrupted")
        return 130


def _run(arguments: Sequence[str]) -> int:
    try:
        if not arguments:
            return overview.run()
        options = parse(arguments)
        code: int = options.run(options)
        return code
    except output.Unwritable:
        raise
    except (CliError, LedgerError) as error:
        output.complain(str(error))
        if _wants_json(arguments):
            output.print_json({"error": str(error)})
        return getattr(error, "code", 1)


def _wants_json(arguments: Sequence[str]) -> bool:
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in words and words[0] != run.NAME


def _have_streams() -> None:
    """Paths and records may hold characters that the output cannot: those are escaped. A closed standard error takes all."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # print() would take standard output instead
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a caller may have put anything there
            stream.reconfigure(errors="backslashreplace")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Raises CliError, and what argparse does. What stands behind `--` goes to `launch`, where the command takes a launch line:
    argparse would take its first word for an argument of ours."""
    words = list(arguments)
    if words and words[0] in _SPOKEN:
        words = [*words[1:2], "--help"] if words[0] == "help" else ["--version"]
    command = _command(words)
    launch: list[str] = []
    if hasattr(COMMANDS.get(command or ""), "LAUNCH") and "--" in words:
        at = words.index("--")
        words, launch = words[:at], words[at + 1 :]
    return parser().parse_args(words, argparse.Namespace(launch=launch))


def parser() -> argparse.ArgumentParser:
    """All commands. Each module has NAME, BRIEF for the list of all, HELP, EXAMPLE (a line to type), add_arguments and run."""
    whole = _Parser(
        prog="attnfix",
        description="Hotfixes for attention in sglang and vLLM. Without arguments: what to do next.",
        epilog="exit codes: 0 fine, 1 not fine, 2 bad arguments, 3 a needed fix is missing",
    )
    whole.add_argument("-V", "--version", action="version", version=f"attnfix {_version()}")
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(name, help=module.BRIEF, description=module.HELP, epilog=f"example: {module.EXAMPLE}")
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return whole


class _Parser(argparse.ArgumentParser):
    def format_help(self) -> str:
        address = output.documentation()
        return super().format_help() + (f"\ndocumentation: {address}\n" if address else "")

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse passes over a help text that could not be written."""
        if file is not sys.stdout or file is None:
            super()._print_message(message, file)
            return
        with output.written():
            file.write(message)


def _command(arguments: Sequence[str]) -> str | None:
    """argparse would answer a misspelt command with the list of all and no word on which was meant."""
    word = next((argument for argument in arguments if not argument.startswith("-")), None)
    if word is not None and word not in COMMANDS:
        raise no_such("command", word, COMMANDS)
    if word is None and arguments and not any(option.startswith(arguments[0]) for option in _OPTIONS):
        raise CliError(f"{arguments[0]!r} is no option of attnfix; `attnfix --help` shows all, and every command", 2)
    return word


def _version() -> str:
    import attnfix

    return attnfix.__version__
