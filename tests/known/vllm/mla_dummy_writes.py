"""vllm.mla-dummy-writes: slots of requests that a warm-up behind a change of ranks writes keys to, with elastic EP.

python tests/known/vllm/mla_dummy_writes.py RELEASE      exit code 1: the bug is there

The runner, its batch, its warm-up and what hands keys to a layer are the release's own; the layer notes its slots. A
correction has to run such a warm-up with slots of nobody, as 0.18.0 does, and as vllm.dp-dummy-states does for idle ranks.
"""

import sys
from types import SimpleNamespace

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    import torch
    from vllm.forward_context import get_forward_context
    from vllm.model_executor.layers.attention import mla_attention

    from attnfix.patches.lab.proof import replaced
    from attnfix.patches.lab.vllm.construction import DENSE, Worker
    from attnfix.patches.lab.vllm.model_runner_v1 import streams
    from attnfix.patches.vllm.dp_dummy_states import proof

    class Rank(proof._V1):
        def keys(self, slots) -> None:
            """What the release writes of them."""
            note, nothing = super().keys, torch.zeros(1)
            layer = SimpleNamespace(impl=SimpleNamespace(do_kv_cache_update=lambda *given: note(given[3])), kv_cache=[nothing])
            with replaced(get_forward_context(), "no_compile_layers", {proof._ATTENTION: layer}):
                mla_attention.unified_mla_kv_cache_update(nothing, nothing, proof._ATTENTION, "auto", nothing)

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
