"""What must be armed in a release, as the ledgers say, against what `attnfix status` says of a served one."""

from __future__ import annotations

from typing import Any

from attnfix.compat.gate import ledger
from attnfix.patches.catalogue import FIXES

#: Of a fix whose module this model's server does not import
DORMANT = "dormant"
_WRONG = {"failed", "conflict", "late", "unknown source"}


def affected(engine: str, release: str) -> set[str]:
    """Fixes whose bug that release has."""
    return {fix.id for fix in FIXES if fix.engine == engine and ledger.load(fix).verdict(release) == ledger.AFFECTED}


def failures(engine: str, release: str, processes: list[dict[str, Any]]) -> list[str]:
    """One sentence for each check that does not hold: a needed fix that no process names, one that failed or stands without
    need. processes: of a server, as e2e.Server.status() tells them."""
    rows = [(fix, row) for process in processes for fix, row in process["fixes"].items()]
    known = affected(engine, release)
    needed = {fix.id for fix in FIXES if fix.id in known and fix.default}
    wrong = [f"{fix} is {row['state']}: {row['reason']}" for fix, row in rows if row["state"] in _WRONG]
    unnamed = sorted(needed - {fix for fix, _ in rows})
    dormant = max((process["others"].get(DORMANT, 0) for process in processes), default=0)
    if len(unnamed) > dormant:
        wrong.append(f"needed by the ledger are {', '.join(unnamed)}; no process names them, and {dormant} fixes are dormant")
    stands = {fix for fix, row in rows if row["state"] in ("installed", "effective")}
    return wrong + [f"{fix} stands, and the ledger does not say affected" for fix in sorted(stands - known)]
