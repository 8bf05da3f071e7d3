"""vllm.glm5next-tail-ring, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

BUG = KnownBug(
    id="vllm.glm5next-tail-ring",
    title="GLM-5.3-Flash selects wrong context with speculative decoding: rejected drafts overwrite keys",
    symptom="Text gets slightly worse with drafts: pools of the sparse index hold keys of rejected tokens.",
    symptoms=(SPECULATION,),
    releases=(">=0.30.0,<0.31.0",),
    code=("vllm.models.glm5next.nvidia.attention:Glm5NextTailCache.get_kv_cache_spec",),
    upstream=Upstream("vllm-project/vllm", pull=55219),
    hits=AllOf(
        Is("architecture", "Glm5NextForCausalLM", "Glm5NextForConditionalGeneration"),
        Is("speculative decoding", ON),
        Is("draft tokens of a step", "several"),
    ),
    avoid="Start without `--speculative-config`.",
)
