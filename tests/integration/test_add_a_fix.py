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
MADE = [f"patches/vllm/my_fix/{part}.py" for part in ("fix", "wrap", "proof")] + [
    f"tests/fixes/vllm/{name}.py" for name in ("test_my_fix", "my_fix")
]
#: A proof that the page shows as it lies here
FAMILY = "patches/sglang/triton_swa_deterministic/proof.py"
#: What a fix has to pass, written or not
TOOLS = """
ruff check patches/vllm tests/fixes
ruff format --check patches/vllm tests/fixes
MYPYPATH=path mypy --follow-imports=skip -p attnfix.patches.vllm.my_fix
"""


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
    skeleton, cases, tested, proven, fooled = PAGE.blocks_in("sh")

    said = typed(checkout, skeleton)
    assert str(checkout) in typed(checkout, "python -c 'import attnfix.patches as p; print(p.__path__)'")
    assert (checkout / "patches" / "vllm" / "catalogue.py").read_text().count('"my_fix"') == 1
    assert re.search(
        r"vllm\.my-fix \(--seed \d+\) on vllm 0\.19\.1: unproven: .*patches/vllm/my_fix/proof\.py runs nothing yet", said
    )
    typed(checkout, TOOLS)

    written = files()
    assert written.keys() == {*MADE, FAMILY}
    assert written.pop(FAMILY) == (ROOT / FAMILY).read_text()
    for path, code in written.items():
        assert "FILL IN" in (checkout / path).read_text() and "FILL IN" not in code
        (checkout / path).write_text(code)
    typed(checkout, TOOLS)
    assert re.search(
        r"bug: 2 corrections in 2 calls\n +0: 0\.5\d → 0,.*spared: 0 corrections", typed(checkout, cases), re.DOTALL
    )
    assert "2 passed" in typed(checkout, tested)

    said = typed(checkout, proven)
    assert "vllm.my-fix 0.19.1: affected (new)" in said and "vllm.my-fix 0.20.0: fixed upstream (new)" in said
    assert re.search(r"\b3 → 0 +same +proven", said)

    assert "failed" in typed(checkout, fooled)

    typed(checkout, "python -m scripts.pages.generate")
    page = "from scripts.pages import fix_pages; print(fix_pages.pages()['fixes/vllm.my-fix.md']())"
    assert "vllm 0.19.1; fixed in 0.20.0" in typed(checkout, f'python -c "{page}"')
    assert "[my-fix](../patches/vllm/my_fix/fix.py)" in (checkout / "docs" / "symptoms.md").read_text()


def files() -> dict[str, str]:
    """{path: code} of each file on the page: a block, and the last path that is named before it."""
    parts = re.split(r"^```python\n(.*?)^```$", PAGE.text, flags=re.S | re.M)
    return {re.findall(r"`((?:patches|tests)/[\w/]+\.py)`", before)[-1]: code for before, code in zip(parts[::2], parts[1::2])}


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
