"""Keeps records of a GPU run: the raw ones in docs/evidence/raw.tar.xz, a summary of each in docs/evidence/runs.

    python -m scripts.evidence e2e-out/*.json        records of the end-to-end scripts, which get a summary each
    python -m scripts.evidence --raw h200 FILE…      other records, under this folder of the archive
    python -m scripts.evidence --extract FOLDER      the whole archive, as files

Cases of an earlier run of the same GPU and release stay, unless the new one has them, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from scripts.evidence import archive, summaries


def keep(files: list[Path], commit: str) -> None:
    """Put records of the end-to-end scripts into the archive, and write their summaries."""
    records = archive.members()
    for file in files:
        found: dict[str, Any] = json.loads(file.read_text())
        former = json.loads(records[file.name])["cases"] if file.name in records else {}
        found["cases"] = former | found["cases"]
        records[file.name] = (json.dumps(found, indent=1) + "\n").encode()
        summary = summaries.RUNS / file.name.removeprefix("e2e-")
        summary.parent.mkdir(parents=True, exist_ok=True)
        summary.write_text(summaries.text(summaries.of(found, file.name, commit)))
    archive.write(records)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--raw", metavar="FOLDER", help="these are other records, of this folder in the archive")
    parser.add_argument("--extract", type=Path, metavar="FOLDER", help="write the records of the archive there")
    options = parser.parse_args()
    if options.extract:
        for name, content in archive.members().items():
            path = options.extract / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    elif options.raw:
        archive.write(archive.members() | {f"{options.raw}/{file.name}": file.read_bytes() for file in options.files})
    else:
        asked = ["git", "rev-parse", "--short", "HEAD"]
        keep(options.files, subprocess.run(asked, cwd=archive.ROOT, capture_output=True, text=True).stdout.strip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
