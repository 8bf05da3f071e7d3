"""vllm.zeroer-buffer, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.zeroer-buffer",
    title="Blocks are not zeroed, and others are in their place (hybrid models, V2 model runner)",
    symptom="The next step overwrites the list of blocks to zero before the GPU has read it, and new ones keep stale values.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.23.0,<0.26.0",),
    code=("vllm.v1.worker.utils:KVBlockZeroer.zero_block_ids",),
    upstream=Upstream("vllm-project/vllm", pull=48085),
    hits=AllOf(Is("model runner", "V2"), Is("recurrent layers", ON), Is("async scheduling", ON)),
    avoid="Start with `--no-async-scheduling`, or with `VLLM_USE_V2_MODEL_RUNNER=0`.",
)
