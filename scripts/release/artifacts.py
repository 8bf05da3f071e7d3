#!/usr/bin/env python3
"""Builds the source archive and both wheels of the committed tree, twice, each time in a folder of its own, and compares them.

python -m scripts.release.artifacts --out dist
    writes the files and SHA256SUMS to dist; exit 1 where the two builds differ
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def build(out: Path, isolated: bool = True) -> dict[str, bytes]:
    """{name: content} of the three files, built from what is committed. `isolated` fetches what pyproject.toml asks for."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "attnfix")
        archive = Path(folder, "tree.tar")
        subprocess.run(["git", "archive", "--output", str(archive), "HEAD"], cwd=ROOT, check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(tree, filter="data")
        command = [sys.executable, "-m", "build", "--outdir", str(out), *([] if isolated else ["--no-isolation"])]
        for project in ([str(tree)], ["--wheel", str(tree / "prove")]):
            subprocess.run([*command, *project], check=True, stdout=subprocess.DEVNULL)
    return {path.name: path.read_bytes() for path in sorted(out.iterdir())}


def differing(one: dict[str, bytes], other: dict[str, bytes]) -> list[str]:
    """Names of the files that are not equal in both."""
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def sums(files: dict[str, bytes]) -> str:
    """As `sha256sum` writes and checks them."""
    return "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in files.items())


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--out", type=Path, default=Path("dist"), help="folder for the files; it must be empty or absent")
    arguments.add_argument("--no-isolation", action="store_true", help="with what this Python has installed")
    options = arguments.parse_args()
    if options.out.exists() and any(options.out.iterdir()):
        print(f"{options.out} is not empty: a release is built into an empty folder", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    files = build(options.out.resolve(), not options.no_isolation)
    with tempfile.TemporaryDirectory() as folder:
        wrong = differing(files, build(Path(folder), not options.no_isolation))
    if wrong:
        print(f"two builds of one commit differ: {', '.join(wrong)}", file=sys.stderr)
        return 1
    (options.out / "SHA256SUMS").write_text(sums(files))
    print(sums(files), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
