"""The command line: `attnfix list|explain|status|verdict|prove|bench`. Each takes --json; results go to standard output."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from attnfix.compat.ledger import LedgerError

from . import bench, explain, listing, prove, status, verdict
from .errors import CliError

_COMMANDS = (listing, explain, status, verdict, prove, bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code: 0 fine, 1 a result that is not, 2 bad arguments."""
    parser = argparse.ArgumentParser(
        prog="attnfix", description="Hotfixes for the attention backends of installed sglang and vLLM releases."
    )
    parser.add_argument("--version", action="version", version=f"attnfix {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in _COMMANDS:
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(argv)
    try:
        return options.run(options)
    except (CliError, LedgerError) as error:
        print(f"attnfix: {error}", file=sys.stderr)
        return getattr(error, "code", 1)
    except BrokenPipeError:  # `attnfix list | head`
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        print("attnfix: interrupted", file=sys.stderr)
        return 130


def _version() -> str:
    import attnfix

    return attnfix.__version__
