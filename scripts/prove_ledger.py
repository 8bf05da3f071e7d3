#!/usr/bin/env python3
"""Proves every fix on one release of each affected code in its ledger, on the CPU: about 12 s each.

    python scripts/prove_ledger.py [--json] > docs/evidence/proofs-cpu/proofs.json
"""

from __future__ import annotations

import sys

from attnfix.cli import main
from attnfix.compat import ledger
from attnfix.patches.catalogue import FIXES

if __name__ == "__main__":
    codes = [(fix.engine, code) for fix in FIXES for code in ledger.load(fix).code if code.verdict == ledger.AFFECTED]
    engines = dict.fromkeys(f"{engine}=={code.first_release}" for engine, code in codes)
    sys.exit(main(["prove", *sys.argv[1:], *(word for name in engines for word in ("--engine", name))]))
