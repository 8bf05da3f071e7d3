"""Labels of the doctor's corpus for sglang (`corpus.py`).

python -m scripts.doctor_corpus.sglang [RELEASE…]   asks releases, each in a process of its own, and labels what they say
python -m scripts.doctor_corpus.sglang labels       labels again what they said
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from attnfix.compat.releases import fetch

from . import corpus


def asked(release: str, of: list[corpus.Case]) -> list[dict[str, Any]]:
    """What the release chooses for each case."""
    with tempfile.TemporaryDirectory() as folder:
        corpus.write_models(Path(folder))
        request = [
            {
                "model": f"{folder}/{case.model}",
                "architecture": corpus.config_of(case.model)["architectures"][0],
                "launch": case.options(Path(folder)),
                "variables": {},
                "gpu": case.gpu,
            }
            for case in of
        ]
        site = fetch.fetch("sglang", release)
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(corpus.ROOT)])}
        command = [sys.executable, "-m", "scripts.doctor_corpus.sglang_release"]
        done = subprocess.run(
            command, input=json.dumps(request), env=environment, cwd=corpus.ROOT, capture_output=True, text=True
        )
    said = next((line for line in done.stdout.splitlines() if line.startswith("labels ")), None)
    if said is None:
        raise SystemExit(f"sglang {release} did not answer: {done.stderr[-2000:]}")
    answers: list[dict[str, Any]] = json.loads(said.removeprefix("labels "))
    return answers


if __name__ == "__main__":
    corpus.main("sglang", asked, sys.argv[1:])
