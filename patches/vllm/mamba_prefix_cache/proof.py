"""Proof of vllm.mamba-prefix-cache: which tokens a request continues from when it finds its prefix in the cache.

Spared: servers without drafts that preempt nobody.
"""

from contextlib import nullcontext

from attnfix.patches.lab.proof import code_of
from attnfix.patches.lab.vllm.conversations import Conversations, talks
from attnfix.patches.lab.vllm.scheduling import SCHEDULER, Served, case

from . import wrap

CONFIG, COORDINATOR = "vllm.model_executor.models.config", "vllm.v1.core.kv_cache_coordinator"
#: With room for every prompt in one step; with less; and with few blocks, so that requests are preempted
IDLE = dict(talk=talks(4, 4, asked=(5, 60), answered=(30, 70)), max_tokens=2048)
BUSY = dict(talk=talks(32, 3, asked=(1, 50), answered=(8, 14)), max_tokens=40)
SHORT = dict(talk=talks(24, 3, asked=(40, 80), answered=(90, 120)), max_tokens=72, blocks=160, context=800, max_requests=16)
LOOKED_UP = {"what attention holds is not asked", "states keep their margin"}


class Proof(Served):
    kind = Conversations
    modules = (SCHEDULER, COORDINATOR, CONFIG)
    measure = "share of cached prefixes that are of other tokens or not there"
    needs = "Scheduler._mamba_block_aligned_split"
    absent = "states of recurrent layers are not cached at the ends of chunks"
    bug = (
        case(**IDLE, drafts=2, page_size=16), case(**BUSY, drafts=2, page_size=16), case(**SHORT, drafts=2, page_size=16),
        case(**IDLE, drafts=1, page_size=32),
    )  # fmt: skip
    spared = (case(**IDLE, page_size=16), case(**BUSY, page_size=32))
    broken = {
        "no chunk is shortened": (wrap, "left_in_block", lambda start, size: 0),
        "a chunk ends before the block does": (wrap.left_in_block, lambda real, start, size: real(start, size) - 1),
        "what attention holds is not asked": (wrap, "attention_holds", lambda instance, blocks, tokens: True),
        "states keep their margin": (wrap, "without_margin", lambda instance, found: nullcontext()),
    }

    def _run(self, cases, seed):
        """Up to 0.16.0 the config refuses drafts beside cached states: a prompt is cut wrongly after a preemption alone."""
        verify = code_of(self.engine[CONFIG].MambaModelConfig.verify_and_update_config.__func__)
        if any("not compatible" in str(text) for text in verify.co_consts):
            cases = tuple(case(each.talk, **{**each.launch, "drafts": 0}) for each in cases)
        return super()._run(cases, seed)

    def sabotages(self):
        """In 0.20.0 to 0.25.1 states are looked up with a margin of drafts."""
        find = code_of(self.engine[COORDINATOR].HybridKVCacheCoordinator.find_longest_cache_hit)
        margin = "eagle_verified" in find.co_varnames and "MambaSpec" not in find.co_names
        ways = super().sabotages()
        return {name: way for name, way in ways.items() if margin or name not in LOOKED_UP}
