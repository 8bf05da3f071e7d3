"""vllm.mamba-same-step, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.mamba-same-step",
    title="Requests that bring one prefix at the same time read a state that is not computed (hybrid models)",
    symptom="With prefix caching, the second of two prompts that share a prefix is answered as if it had another beginning.",
    symptoms=(CACHED_PREFIX, SHARED_BATCH, GARBAGE),
    releases=(">=0.11.1,<0.17.0",),
    code=("vllm.v1.core.single_type_kv_cache_manager:MambaManager.get_num_blocks_to_allocate",),
    ran=("0.16.0",),
    upstream=Upstream("vllm-project/vllm", pull=29387),
    hits=AllOf(
        Is("cached prefixes of a hybrid model", ON),
        Is("recurrent layers", ON),
        Unseen("two prompts with a common prefix of a block or more whose prefill begins in one step"),
    ),
    avoid="Start with `--no-enable-prefix-caching`.",
)
