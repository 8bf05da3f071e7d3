"""vllm.mla-dummy-writes: slots of requests that a warm-up behind a change of ranks writes keys to, with elastic EP.

python tests/known/vllm/mla_dummy_writes.py RELEASE      exit code 1: the bug is there

The runner, its batch and its warm-up are the release's own; the model notes the slots that its layers would write to. A
correction has to run such a warm-up with slots of nobody, as 0.18.0 does, and as vllm.dp-dummy-states does for idle ranks.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    import torch

    from attnfix.patches.lab.vllm.construction import DENSE, Worker
    from attnfix.patches.lab.vllm.model_runner_v1 import streams
    from attnfix.patches.vllm.dp_dummy_states import proof

    class Rank(proof._V1):
        def idle(self, runner) -> None:
            runner._dummy_run(4, skip_eplb=True, remove_lora=False)

    case, engine = proof.Idle(graph=False), proof.Proof()
    engine.prepare()
    worker = Worker(DENSE, backend="flash_attn.FlashAttentionBackend", page_size=proof._PAGE, max_requests=proof._ROWS)
    with worker, streams(), torch.compiler.set_stance("force_eager"):
        rank = Rank(engine.engine, case, worker)
        rank.played()
    slots = [slot for step in rank.seen[:-1] for slot in step if isinstance(slot, int)]
    print(f"vllm {release}: a warm-up writes to {len(slots)} slots of requests: {slots}")
    return 1 if slots else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
