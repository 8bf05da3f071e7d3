"""vllm.gemma4-draft-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES, SPECULATION

BUG = KnownBug(
    id="vllm.gemma4-draft-scales",
    title="Gemma 4 accepts far fewer drafts: its drafter reads a calibrated FP8 KV cache without the scales",
    symptom="The acceptance rate of Gemma 4's MTP drafter falls with a calibrated FP8 KV cache. Texts stay right.",
    symptoms=(SPECULATION, KV_SCALES),
    releases=(">=0.21.0,<=0.33.0",),
    code=(
        "vllm.v1.spec_decode.gemma4:Gemma4Proposer._setup_gemma4_kv_sharing",
        "vllm.v1.worker.gpu.spec_decode.gemma4.speculator:Gemma4Speculator._setup_gemma4_kv_sharing",
    ),
    upstream=Upstream("vllm-project/vllm", pull=48666),
    hits=AllOf(
        Is("architecture", "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"),
        AnyOf(Not(Since("0.31.0")), Is("model runner", "V1")),
        Is("drafts from hidden states", ON),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        Unseen("scales of K and V in the checkpoint, and Gemma 4's own drafter"),
    ),
    harm=SLOWER,
    avoid="Start with a KV cache of 16 bits: `--kv-cache-dtype bfloat16`.",
)
