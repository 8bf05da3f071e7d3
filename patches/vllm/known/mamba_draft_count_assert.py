"""vllm.mamba-draft-count-assert, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SPECULATION

BUG = KnownBug(
    id="vllm.mamba-draft-count-assert",
    title="The engine dies as a request drafts fewer tokens than before (hybrid models, cached prefixes)",
    symptom="AssertionError `num_required_blocks … < len(req_blocks) …` in the scheduler.",
    symptoms=(CACHED_PREFIX, DIES, SPECULATION),
    releases=(">=0.17.0,<0.23.0",),
    code=("vllm.v1.core.single_type_kv_cache_manager:MambaManager.allocate_new_blocks",),
    upstream=Upstream("vllm-project/vllm", pull=39562, issue=43382),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("cache mode of states", "align"),
        Is("speculative decoding", ON),
        Unseen("drafts at the end of a block that are rejected before a step of fewer drafts"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
    harm=CRASH,
)
