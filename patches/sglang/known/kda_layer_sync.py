"""sglang.kda-layer-sync, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="sglang.kda-layer-sync",
    title="Slower prefill of Kimi Linear and K3, Ling 3, GLM-5 Next: the CPU waits in each KDA layer",
    symptom="Prefill takes longer than in the releases around, most with short prompts.",
    symptoms=(SLOW,),
    releases=(">=0.5.20,<0.5.21",),
    code=("sglang.srt.layers.attention.linear.kda_backend:KDAAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang"),
    harm=SLOWER,
    hits=AllOf(
        Is("GPU", "NVIDIA", AMD),
        Is(
            "architecture",
            *("KimiLinearForCausalLM", "KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM"),
            *("BailingMoeV3ForCausalLM", "Glm5NextForConditionalGeneration"),
        ),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Nothing within the release.",
)
