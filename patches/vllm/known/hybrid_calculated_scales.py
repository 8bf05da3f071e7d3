"""vllm.hybrid-calculated-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.hybrid-calculated-scales",
    title="Gibberish with --calculate-kv-scales and an FP8 KV cache (hybrid models)",
    symptom="Answers loop or leave the topic: the scales come from a dummy step in which the recurrent layers have no state.",
    symptoms=(KV_SCALES,),
    releases=(">=0.11.1,<0.19.0",),
    code=("vllm.model_executor.models.config:HybridAttentionMambaModelConfig.verify_and_update_config",),
    upstream=Upstream("vllm-project/vllm", pull=37565, issue=37554),
    hits=AllOf(Is("recurrent layers", ON), Given("--calculate-kv-scales"), Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2")),
    avoid="Leave out --calculate-kv-scales.",
)
