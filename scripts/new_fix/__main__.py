"""Writes what a new fix consists of, with FILL IN where something is missing, and says what to do next.

    python -m scripts.new_fix vllm my-fix vllm.package.module:Class.method

makes patches/vllm/my_fix, a test and its rows, and the line in the catalogue. Until the engine's function is named and the
proof is written, `attnfix prove` says "unproven", and why.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from string import Template

from attnfix.compat.engines import ENGINES
from attnfix.compat.fix import CodePath

ROOT = Path(__file__).resolve().parents[2]
SKELETON = Path(__file__).parent / "skeleton"
_UPSTREAM = {"sglang": "sgl-project/sglang", "vllm": "vllm-project/vllm"}
_NEXT = """
Next, as docs/add-a-fix.md shows:
1. Fill in what `grep -n "FILL IN" {files}` finds.
2. attnfix prove --engine {engine}==RELEASE --fix {id}
   says what is missing, then whether the release shows the bug.
3. python -m scripts.ledger.ledgers --forks --fix {id}
   judges every release. From then on, `attnfix prove` says proven or failed.
4. python -m scripts.ledger.matrix --merge --fix {id} && python -m scripts.pages.generate
5. make test
"""


class Refused(Exception):
    """The skeleton cannot be written; says why."""


def write(engine: str, name: str, target: str | None = None, root: Path = ROOT) -> list[Path]:
    """Write the skeleton of `engine.name` into the checkout at `root`; the files, the catalogue last.

    name: words of lower case and digits between hyphens. target: "module:Class.method", the engine's function that the fix
    wraps. Raises Refused where a name is none, or something is there already.
    """
    if not re.fullmatch(r"[a-z][a-z\d]*(-[a-z\d]+)*", name):
        raise Refused(f"{name!r} is no name of a fix: words of a-z and 0-9 between hyphens, as in zero-kv-rows")
    try:
        place = CodePath.parse(target or f"{engine}.fill_in:Class.method")
    except ValueError as error:
        raise Refused(str(error)) from error
    if place.module.partition(".")[0] != engine or not place.qualname:
        raise Refused(f"{place} is no function of {engine}")
    folder, catalogue = root / "patches" / engine / name.replace("-", "_"), root / "patches" / engine / "catalogue.py"
    if folder.exists():
        raise Refused(f"{folder.relative_to(root)} is there already")
    words = {"engine": engine, "id": f"{engine}.{name}", "folder": folder.name, "upstream": _UPSTREAM[engine]}
    words |= {"module": place.module, "qualname": place.qualname, "method": place.qualname.rpartition(".")[2]}
    files = {folder / f"{part}.py": part for part in ("fix", "wrap", "facts", "proof")}
    tests = root / "tests" / "fixes" / engine
    files |= {tests / f"{folder.name}.py": "rows", tests / f"test_{folder.name}.py": "test"}
    folder.mkdir()
    (folder / "__init__.py").touch()
    for file, part in files.items():
        file.write_text(Template((SKELETON / f"{part}.py.in").read_text()).substitute(words))
    line = rf'\1    "{folder.name}",\n'
    text = re.sub(r"(^_FOLDERS = \(\n.*?)(?=^\)$)", line, catalogue.read_text(), count=1, flags=re.DOTALL | re.MULTILINE)
    catalogue.write_text(text)
    return [*files, catalogue]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.new_fix", description="Write the skeleton of a fix.")
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("name", help="of the fix, as in zero-kv-rows")
    parser.add_argument("target", nargs="?", help="the engine's function that it wraps, as in module:Class.method")
    options = parser.parse_args(arguments)
    try:
        files = write(options.engine, options.name, options.target, ROOT)
    except Refused as error:
        print(error, file=sys.stderr)
        return 2
    shown = [path.relative_to(ROOT) for path in files]
    print("written:", *shown, sep="\n  ")
    print(_NEXT.format(engine=options.engine, id=f"{options.engine}.{options.name}", files=" ".join(map(str, shown))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
