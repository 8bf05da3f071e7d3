"""Proof of vllm.mamba-state-column: of which tokens is the recurrent state that a request begins with, behind a cached prefix?

A drafter's layer takes twice the memory of the target's for a token, so a block of its tokens is half as long. Spared: blocks
of one size, as without such a drafter.
"""

from pathlib import Path

from attnfix.patches.lab.proof import NoSuchPath
from attnfix.patches.lab.vllm import model_runner_v2 as v2
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, case

from . import wrap

WINDOWED = {"per_layer_sliding_window": 64, "num_kv_heads": 4}
LAUNCH = dict(
    model=v2.LARGE_STATES,
    backend="flashinfer.FlashInferBackend",
    page_size=64,
    context=v2.CONTEXT,
    max_requests=v2.ROWS,
    blocks=64,
)


def _for_the_first(real, instance):
    first = not hasattr(instance, "once")
    instance.once = True
    return real(instance) if first else int(instance.cache_config.block_size)


class Proof(v2.RunnerV2):
    kind = v2.CachedStates
    modules = (v2.STATE, v2.TABLES, v2.BUFFERS, SCHEDULER)
    may_lack = modules[:3]
    measure = "share of states behind a cached prefix that are of other tokens"
    needs = "MambaHybridModelState.preprocess_state"
    absent = "Model Runner V2 does not take recurrent states from the cache"
    bug = (case(v2.turns(2, 3, 260), **LAUNCH, drafter=WINDOWED, max_tokens=2048),)
    spared = (case(v2.turns(2, 3, 260), **LAUNCH, max_tokens=2048),)
    broken = {
        "the column after": (wrap.column, lambda real, computed, size: real(computed, size) + 1),
        "that of the next token": (wrap, "column", lambda computed, size: computed // size),
        "by the size of attention's blocks": (wrap, "size_of_state_block", lambda instance: instance.cache_config.block_size),
        "for the first request alone": (wrap.size_of_state_block, _for_the_first),
    }

    def prepare(self):
        super().prepare()
        # 0.28.0 ends chunks with the shorter blocks, so that what is cached may be of other tokens in every column
        if "prefill_checkpoint" not in Path(self.engine[SCHEDULER].__file__).read_text():
            raise NoSuchPath("states are cached at the ends of shorter blocks: no column is the right one")

    def run(self, case, seed):
        try:
            return super().run(case, seed)
        except AssertionError as refused:
            if "hash_block_size" not in str(refused):
                raise
            raise NoSuchPath("no server starts with blocks of two sizes beside states that are cached") from refused
