"""vllm.packed-zeroing, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="vllm.packed-zeroing",
    title="DeepSeek-V4 forgets keys: a new block zeroes the start of the next, which a request may own",
    symptom="Equal requests get different answers, and long prompts lose what is asked for, as the free blocks lie.",
    symptoms=(GARBAGE, LONG_PROMPT, SHARED_BATCH),
    releases=(">=0.27.0,<0.28.0",),
    code=("vllm.v1.worker.utils:KVBlockZeroer.__init__", "vllm.v1.worker.utils:_zero_kv_blocks_kernel"),
    upstream=Upstream("vllm-project/vllm", pull=50276),
    hits=AnyOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        AllOf(
            AnyOf(
                Given("--kv-transfer-config.kv_connector_extra_config.enable_cross_layers_blocks"),
                Given("--kv-transfer-config.kv_connector_extra_config"),
            ),
            Unseen("enable_cross_layers_blocks, and several groups of KV caches, some with states or in another precision"),
        ),
    ),
    avoid="Nothing within the release avoids it; take release 0.28.0.",
)
