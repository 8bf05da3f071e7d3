"""Attempts at vllm.mamba-state-column and vllm.dummy-draft-kv in the releases that both fixes leave alone.

    CUDA_VISIBLE_DEVICES= PYTHONPATH=SITE ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.vllm_hybrid_v2_older

SITE: a folder with a stock vLLM, 0.17.0-0.28.0. Both bugs need Model Runner V2 (VLLM_USE_V2_MODEL_RUNNER=1). The two proofs
play their scenario and their control, without what tells them to pass such a release by. One line for each: the
share that is wrong.

What was seen, in 0.17.1, 0.21.0, 0.24.0, 0.25.1, 0.26.0, 0.27.1 and 0.28.0:
- dummy drafts overwrite the drafter's keys in all seven: 1.00, and 0.00 in the control. The kernel of slots has no switch there
  that gives a batch no slots, so that nothing could be corrected safely;
- a state is looked up in the wrong column in 0.28.0: 1.00, and 0.00 in the control. States are cached at the ends of the
  shorter blocks there, so that no column is the right one;
- 0.25.1-0.27.1 do not start with blocks of two sizes beside states that are cached, and Model Runner V2 of 0.24.0 and older
  takes no state from the cache: the bug cannot be reached.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from attnfix.patches.lab.proof import NoSuchPath
from attnfix.patches.lab.vllm import kernels
from attnfix.patches.vllm.dummy_draft_kv import proof as dummy_draft_kv
from attnfix.patches.vllm.mamba_state_column import proof as mamba_state_column
from attnfix.prove import stubs

_SEED = 1


class _StateColumn(mamba_state_column.Proof):
    def prepare(self) -> None:
        """Any release is played."""


class _DummyDraft(dummy_draft_kv.Proof):
    def prepare(self) -> None:
        buffers = self.engine[dummy_draft_kv._BUFFERS]
        buffers.is_uva_available = lambda: True  # ordinary memory is seen by all of this machine
        for name in [name for name in vars(buffers) if name.startswith("get_") and name.endswith("view_from_cpu_tensor")]:
            setattr(buffers, name, lambda tensor: tensor)


def said(make: Any, play: str) -> str:
    """What came out: how much was wrong, or why nothing was played."""
    try:
        proof = make()
        proof.prepare()
        with kernels.on_cpu():
            return f"{getattr(proof, play)(_SEED).error:.2f} wrong"
    except NoSuchPath as reason:
        return f"not there: {reason}"
    except Exception as error:  # of a release that the proof was not made for
        return f"does not run: {type(error).__name__}: {error}"


def main() -> None:
    stubs.install("vllm")
    logging.disable(logging.WARNING)
    version = import_module("importlib.metadata").version("vllm")
    for name, make in (("vllm.mamba-state-column", _StateColumn), ("vllm.dummy-draft-kv", _DummyDraft)):
        for play in ("scenario", "control"):
            print(f"{version} {name:24} {play:8} {said(make, play)}", flush=True)


if __name__ == "__main__":
    main()
