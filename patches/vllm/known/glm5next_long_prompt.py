"""vllm.glm5next-long-prompt, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.glm5next-long-prompt",
    title="GLM-5.3-Flash crashes with very long prompts: slots are looked up outside of the block table",
    symptom="A prompt of some hundred thousand tokens ends the server with an illegal memory access.",
    symptoms=(DIES,),
    releases=(">=0.30.0,<0.31.0",),
    code=("vllm.v1.kv_cache_interface:KpoolTailSpec",),
    upstream=Upstream("vllm-project/vllm", pull=57317, issue=57227),
    hits=AllOf(
        Is("architecture", "Glm5NextForCausalLM", "Glm5NextForConditionalGeneration"),
        Is("model runner", "V2"),
        Unseen("a prompt of some hundred thousand tokens"),
    ),
    harm=CRASH,
    avoid="Start with a shorter `--max-model-len`.",
)
