"""vllm.lse-log-base in real releases under decode context parallelism: right, and without a wait for the GPU in each step."""

from __future__ import annotations

import pytest

HEAD = """
import torch
from attnfix.patches.lab import emulators
from attnfix.patches.lab.proof import observe
from attnfix.patches.lab.vllm import dcp_prefill
from attnfix.patches.vllm.lse_log_base.proof import Proof

proof = Proof()
proof.prepare()
backend = proof.engine[dcp_prefill.BACKEND]
reads = []

class OnGpu(torch.Tensor):
    "A GPU's: the host waits to read it."
    def tolist(self):
        reads.append("tolist")
        return self.as_subclass(torch.Tensor).tolist()

class Watched(emulators.PagedWrapper):
    "The stand-in, whose buffers wait when somebody else reads them on the host."
    running = False
    def run(self, *args, **kwargs):
        self.running = True
        try:
            return super().run(*args, **kwargs)
        finally:
            self.running = False
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return value.as_subclass(OnGpu) if name.endswith("_buf") and not self.running else value

def step(context, dtype="bfloat16", new=(5, 2, 6, 3)):
    dcp_prefill.use(backend, 2)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: Watched(2, layout)
    before = len(reads)
    out, reference = dcp_prefill.outputs(backend, 5, context, new, "NHD", dtype)
    return observe(out, reference).error, len(reads) - before

def state():
    import attnfix
    row = next(row for row in attnfix.status() if row["fix"] == "vllm.lse-log-base")
    return row["state"], row["counters"]["corrections"] > 0
"""


@pytest.mark.parametrize("release", ["0.11.2", "0.18.0", "0.28.0"])
def test_fresh_prompts_never_wait_for_the_gpu(engine_fork, release):
    """Until context is seen, each step of each layer is told from the plan on the host; then from one row, once."""
    code = HEAD + "answer([[step((0, 0, 0, 0)) for _ in range(2)], [step((37, 1, 33, 48)) for _ in range(2)], state()])"
    fresh, cached, state = engine_fork("vllm", release).evaluate(code)
    assert [waits for _, waits in fresh] == [0, 0]
    assert max(error for error, _ in [*fresh, *cached]) < 0.01
    assert [waits for _, waits in cached] == [0, 0] and state == ["effective", True]


@pytest.mark.parametrize("release", ["0.11.2", "0.19.1"])
def test_too_few_new_tokens_go_by_the_context(engine_fork, release):
    """Of two keys the LSE can be too near to 0 to tell its base by: then the context's says it, and both are converted."""
    code = HEAD + (
        "from attnfix.compat.arming.wrapper import WrappedTarget\n"
        "wrapper = WrappedTarget.of(vars(backend.BatchDCPPrefillWrapper)['run'])\n"
        "errors = []\n"
        "for seed in 10, 12, 13, 24:\n"
        "    link, = wrapper.links\n"
        "    link.state.observations.clear()  # as in a process that has seen nothing yet\n"
        "    dcp_prefill.use(backend, 2)\n"
        "    seen = dcp_prefill.outputs(backend, seed, (37, 1, 33, 48), (2, 2, 2, 2), 'NHD', 'bfloat16')\n"
        "    errors.append(observe(*seen).error)\n"
        "answer(errors)"
    )
    assert max(engine_fork("vllm", release).evaluate(code)) < 0.01


HALVES = """
from attnfix.patches.vllm.shared import dcp_lse_base

def layer(context, bases=BASES):
    dcp_prefill.use(backend, 2)
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: emulators.RaggedWrapper(bases[0])
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: emulators.PagedWrapper(bases[1], layout)
    one = observe(*dcp_prefill.outputs(backend, 5, context, (5, 2, 6, 3), "NHD", "bfloat16"))
    return [one.error, one.bits]

for name in UNSEEN:
    setattr(dcp_lse_base, name, lambda *args: None)
answer([[layer((37, 1, 33, 48)) for _ in range(2)], state()])
"""


def halves(engine_fork, release, bases, unseen=(), **environment):
    code = f"BASES, UNSEEN = {bases!r}, {unseen!r}\n{HEAD}{HALVES}"
    return engine_fork("vllm", release).evaluate(code, **environment)


@pytest.mark.parametrize("release", ["0.11.2", "0.18.0"])
@pytest.mark.parametrize("bases", [(2, 10), (10, 2)])
def test_a_half_of_neither_base_keeps_the_other_as_it_is(engine_fork, release, bases):
    (_, (_, stock)), _ = halves(engine_fork, release, bases, ATTNFIX="0")
    (_, (_, fixed)), (state, _) = halves(engine_fork, release, bases)
    assert state == "unknown source" and fixed == stock  # in the first layer one half may have come and gone


@pytest.mark.parametrize("unseen", ["context_row", "new_tokens_row"])
def test_a_half_that_cannot_be_seen_goes_by_the_other(engine_fork, unseen):
    (_, second), state = halves(engine_fork, "0.18.0", (2, 2), [unseen])
    assert second[0] < 0.01 and state == ["effective", True]


CAPPED = """
def capped(cls):
    "The stand-in, planned with a soft cap."
    class Capped(cls):
        def plan(self, *args, **options):
            super().plan(*args, **options)
            self._logits_soft_cap = 30.0
    return Capped

def layer():
    backend.BatchPrefillWithRaggedKVCacheWrapper = lambda *args, **kwargs: capped(emulators.RaggedWrapper)(2)
    backend.BatchPrefillWithPagedKVCacheWrapper = lambda space, layout: capped(emulators.PagedWrapper)(2, layout)
    return observe(*dcp_prefill.outputs(backend, 5, (37, 1, 33, 48), (5, 2, 6, 3), "NHD", "bfloat16")).bits
"""


@pytest.mark.parametrize("release", ["0.11.2", "0.28.0"])
def test_a_soft_cap_is_left_alone_aloud(engine_fork, release):
    """Told from the plan, once: later layers are the engine's own, without a twin of its code around them."""
    code = HEAD + CAPPED + (
        "from attnfix.patches.vllm.shared import dcp_lse_base\n"
        "twins, rebound = [], dcp_lse_base.rebound\n"
        "dcp_lse_base.rebound = lambda *args, **names: twins.append(names) or rebound(*args, **names)\n"
        "answer([layer(), state(), len(twins)])"
    )  # fmt: skip
    stock = engine_fork("vllm", release).evaluate(HEAD + CAPPED + "answer(layer())", ATTNFIX="0")
    assert engine_fork("vllm", release).evaluate(code) == [stock, ["unknown source", False], 0]
