"""vllm.dcp-decode-lse-base in real releases: the only two that combine FlashInfer's decode with base e."""

from __future__ import annotations

import pytest

HEAD = """
from attnfix.patches.lab.proof import replaced
from attnfix.patches.vllm.dcp_decode_lse_base import proof

proven = proof.Proof()
proven.prepare()

def state():
    import attnfix
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.dcp-decode-lse-base")
    return row["state"], row["counters"]["corrections"], row["counters"]["calls"]
"""


@pytest.mark.parametrize("release", ["0.11.1", "0.11.2"])
def test_ranks_combine_what_the_kernel_meant(engine_fork, release):
    """Natural LSEs are left alone; a rank whose share of every request is empty judges nothing, and asks no GPU."""
    code = HEAD + (
        "natural = [proven.control(5).error, state()]\n"
        "base_2 = [proven.scenario(5).error, state()]\n"
        "with replaced(proof, '_CONTEXT', (0, 0)):\n"
        "    one_token = proven.scenario(5).error\n"
        "answer([natural, base_2, one_token])"
    )
    natural, base_2, one_token = engine_fork("vllm", release).evaluate(code)
    assert natural[0] < 0.001 and natural[1][1] == 0 and natural[1][2] > 0
    assert base_2[0] < 0.01 and base_2[1][0] == "effective"
    assert one_token < 0.01


def test_later_releases_are_left_alone(engine_fork):
    code = (
        "import vllm.v1.attention.backends.flashinfer, attnfix\n"
        "answer([row['state'] for row in attnfix.status() if row['fix'] == 'vllm.dcp-decode-lse-base'])"
    )
    assert engine_fork("vllm", "0.12.0").evaluate(code) == ["fixed upstream"]


CAPPED = """
import torch
from attnfix.patches.lab.vllm.construction import Worker

reads, caps = [], []

class OnGpu(torch.Tensor):
    "A GPU's: the host waits to read it."
    def tolist(self):
        reads.append("tolist")
        return self.as_subclass(torch.Tensor).tolist()

class Watched(proof._Decode):
    "The stand-in, with the cap that it was planned with; its buffers wait when somebody else reads them on the host."
    running = False
    def plan(self, *args, **options):
        self._alone(super().plan, *args, **options)
        self._logits_soft_cap = args[9] or 0.0
    def run(self, *args, **options):
        caps.append(self._logits_soft_cap)
        return self._alone(super().run, *args, **options)
    def _alone(self, step, *args, **options):
        self.running = True
        try:
            return step(*args, **options)
        finally:
            self.running = False
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        tensor = isinstance(value, torch.Tensor) and name.endswith("_buf") and not self.running
        return value.as_subclass(OnGpu) if tensor else value

proof._Decode, layer = Watched, Worker.layer

def step(cap):
    "The error of a layer with this cap or None, the caps that its kernels ran with, and what was read of the GPU."
    reads.clear(), caps.clear()
    Worker.layer = lambda self, *args, **more: layer(self, *args, logits_soft_cap=cap, **more)
    return proven.scenario(5).error, sorted(set(caps)), len(reads)
"""


@pytest.mark.parametrize("release", ["0.11.1", "0.11.2"])
def test_a_soft_cap_is_told_without_a_wait_for_the_gpu(engine_fork, release):
    """Where the LSE is of capped products, nothing is read of the GPU, and `status` says that the kernel is left alone."""
    code = HEAD + CAPPED + "answer([[step(30.0)[1:] for _ in range(2)], state()])"
    steps, state = engine_fork("vllm", release).evaluate(code)
    assert steps == [[[30.0], 0]] * 2 and state[:2] == ["unknown source", 0]


def test_layers_with_a_soft_cap_go_by_those_without(engine_fork):
    """One library makes both: what a layer without a cap shows holds for the others."""
    code = HEAD + CAPPED + "answer([step(30.0)[1:], state(), step(None), state(), step(30.0)[1:], state()])"
    capped, left, (error, caps, reads), seen, again, both = engine_fork("vllm", "0.11.2").evaluate(code)
    assert capped == again == [[30.0], 0] and left[:2] == ["unknown source", 0]
    assert error < 0.01 and caps == [0.0] and reads > 0, "the stand-in says that it is read"
    assert seen[0] == both[0] == "effective" and both[1] > seen[1] > 0
