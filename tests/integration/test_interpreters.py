"""Digests and verdicts are the same under every Python that is here, with the file-hash fast path off."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest

from attnfix.patches.catalogue import FIXES
from attnfix.prove.runner import examined
from tests.robustness import plain_environment
from tests.support.environments import ROOT
from tests.support.interpreters import PRESENT

HERE = "{}.{}".format(*sys.version_info)
RELEASES = [("sglang", "0.5.2"), ("sglang", "0.5.10.post1"), ("sglang", "0.5.11"), ("vllm", "0.20.2"), ("vllm", "0.33.0")]
CODE = """
import functools, json, sys
from pathlib import Path
from attnfix.compat.gate import judge, source_files
from attnfix.patches.catalogue import FIXES
judge._digest = functools.lru_cache(None)(judge._digest)  # the verdict is made of them, too
found = {}
for engine, release, root in json.loads(sys.argv[1]):
    sources = source_files.Sources(Path(root))
    for fix in FIXES:
        if fix.engine == engine:
            verdict = judge.judge(fix, sources, use_file_hashes=False)
            found[f"{fix.id} {release}"] = [verdict.kind, judge.digests(fix, sources)]
print(json.dumps(found))
"""


def judged_by(python, wheel_folder):
    from attnfix.compat.releases import fetch

    roots = [(engine, release, str(fetch.fetch(engine, release) / engine)) for engine, release in RELEASES]
    command = [python, "-S", "-c", f"import sys; sys.path.insert(0, {str(wheel_folder)!r})\n{CODE}", json.dumps(roots)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    shutil.unpack_archive(wheel, folder, "zip")
    return folder


@pytest.fixture(scope="module")
def here(unpacked):
    return judged_by(sys.executable, unpacked)


def test_at_least_three_interpreters_are_compared():
    if len(PRESENT) < 3:
        pytest.skip(f"only {', '.join(PRESENT)} here")


@pytest.mark.parametrize("version", [version for version in PRESENT if version != HERE])
def test_same_digests_and_verdicts(unpacked, here, version):
    assert judged_by(PRESENT[version], unpacked) == here


def test_and_they_are_the_expected_verdicts(here):
    kinds = {name: kind for name, (kind, _) in here.items()}
    assert (
        kinds.items()
        >= {
            "sglang.zero-kv-rows 0.5.2": "not affected",
            "sglang.zero-kv-rows 0.5.10.post1": "affected",
            "sglang.zero-kv-rows 0.5.11": "fixed upstream",
            "vllm.empty-context-chunks 0.20.2": "affected",
            "vllm.empty-context-chunks 0.33.0": "fixed upstream",
        }.items()
    )
    assert len(kinds) > len(RELEASES)
    unknown = {name for name, kind in kinds.items() if kind == "unknown"}
    assert unknown == {
        f"{fix.id} {release}"
        for engine, release in RELEASES
        for fix in FIXES
        if fix.engine == engine and not examined(fix, release)
    }


def test_a_session_of_nox_passes(wheel, tmp_path):
    """As the workflow runs them, one for each Python; `make robustness` runs all."""
    session = f"without_torch(python {HERE}, wrapt >=2,<3,!=2.2.0)"
    command = [sys.executable, "-m", "nox", "--noxfile", str(ROOT / "noxfile.py"), "--envdir", str(tmp_path), "-s", session]
    done = subprocess.run([*command, "--", str(wheel)], cwd=ROOT, env=plain_environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "activation paths: " in done.stdout + done.stderr, done.stdout + done.stderr
