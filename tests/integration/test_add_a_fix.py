"""docs/add-a-fix.md, typed as it stands into a copy of this checkout: real releases, a ledger, a proof red to green."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PAGE = Page(ROOT / "docs" / "add-a-fix.md")
PACKAGES = ("compat", "kernels", "patches")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """A copy to write into, and beside it `path/attnfix`, the package as an editable install of the copy would show it."""
    copy = tmp_path_factory.mktemp("checkout")
    without = shutil.ignore_patterns("__pycache__")
    for name in ("attnfix", *PACKAGES, "scripts", "docs", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=without)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copy(ROOT / name, copy)
    package = copy / "path" / "attnfix"
    package.mkdir(parents=True)
    for entry in [*(copy / "attnfix").iterdir(), *(copy / name for name in PACKAGES)]:
        (package / entry.name).symlink_to(entry)
    return copy


def test_the_page_can_be_typed(checkout):
    for path, code in files():
        (checkout / path).parent.mkdir(exist_ok=True)
        (checkout / path).write_text(code)
    lines, ledger, proof, fooled = PAGE.blocks_in("sh")

    typed(checkout, lines)
    assert str(checkout) in typed(checkout, "python -c 'import attnfix.patches as p; print(p.__path__)'")
    assert (checkout / "patches" / "vllm" / "catalogue.py").read_text().count('"my_fix"') == 1

    said = typed(checkout, ledger)
    assert "vllm.my-fix 0.25.1: affected (new)" in said and "vllm.my-fix 0.26.0: fixed upstream (new)" in said
    assert re.search(r"vllm\.my-fix +affected +0\.26\.0", said)

    said = typed(checkout, proof)
    assert re.search(r"not finite → 0\.00\d+ +same +proven", said)

    assert "failed" in typed(checkout, fooled)

    typed(checkout, "python -m scripts.pages.generate")
    page = "from scripts.pages import fix_pages; print(fix_pages.pages()['fixes/vllm.my-fix.md']())"
    assert "vllm 0.25.1; fixed in 0.26.0" in typed(checkout, f'python -c "{page}"')
    assert "[my-fix](../patches/vllm/my_fix/fix.py)" in (checkout / "docs" / "symptoms.md").read_text()


def files() -> list[tuple[str, str]]:
    """(path, code) of each file on the page: a block, and the path that its paragraph begins with."""
    found = re.findall(r"^`(patches/[\w/]+\.py)`[^`]*(?:`[^`\n]+`[^`]*)*?```python\n(.*?)^```$", PAGE.text, re.S | re.M)
    assert len(found) == len(PAGE.blocks_in("python"))
    return found


def typed(checkout: Path, commands: str) -> str:
    """What the commands say, each as in a shell in the checkout; all of them have to succeed."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment["PYTHONPATH"] = str(checkout / "path")
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment["COLUMNS"] = "200"
    script = "set -euo pipefail\n" + re.sub(r"^! (.*)$", r"if \1; then exit 1; fi", commands, flags=re.M)
    done = subprocess.run(["bash", "-c", script], cwd=checkout, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
