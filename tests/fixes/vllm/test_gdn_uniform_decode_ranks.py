"""vllm.gdn-uniform-decode on two ranks of a real group, with the runner of a real release: one whose correction fails would
replay a graph while the other runs without, and have another number of collectives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnfix.compat.releases import fetch
from attnfix.prove.runner import CPU

RELEASE = "0.33.0"
#: Seconds in which both ranks import the engine, and one that waits for the other would be seen
LIMIT = 200

#: The collectives of a graph and of a step without one stand for those of the layers
RANK = """
import datetime, sys
from attnfix.prove import stubs
stubs.install("vllm")
import attnfix, torch, torch.distributed as dist
from attnfix.patches.vllm.gdn_uniform_decode import proof, wrap
modules = proof.Proof().engine
rank, store, fails = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "True"
if rank and fails:
    def prefills(*_): raise ValueError("ours")
    wrap.prefills = prefills
dist.init_process_group("gloo", "file://" + store, rank=rank, world_size=2, timeout=datetime.timedelta(minutes=10))
request = proof._Request(0)
request.known = proof._K + 1
batch = torch.ones(1)
try:
    mode = proof._mode(modules, [(request, proof._K + 1)])
    for _ in range(1 if mode == proof._FULL else 2):
        dist.all_reduce(batch)
    dist.recv(batch, 0) if rank else dist.send(batch, 1)
    print("served", mode)
finally:
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.gdn-uniform-decode")
    print(row["state"], row["reason"], flush=True)
"""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("fails", [True, False])
def test_the_server_ends_within_seconds_where_one_rank_cannot_decide(fails, tmp_path):
    site = fetch.fetch("vllm", RELEASE)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ATTNFIX")}
    environment = {**clean, **CPU, "PYTHONPATH": str(site), "ATTNFIX_RUN_DIR": str(tmp_path / "run")}
    how = {"env": environment, "cwd": Path(tmp_path), "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path / "store"), str(fails)], **how) for rank in range(2)]
    try:
        (first, second) = [rank.communicate(timeout=LIMIT)[0] for rank in ranks]
    except subprocess.TimeoutExpired:
        pytest.fail("one rank waits for the other")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [bool(rank.returncode) for rank in ranks] == [fails, fails]
    if fails:
        assert "served" not in first + second and "effective" in first
        assert "failed" in second and "ValueError: ours" in second and "on rank 1 of 2" in second
    else:
        assert "served PIECEWISE" in first and "served PIECEWISE" in second and "effective" in first
