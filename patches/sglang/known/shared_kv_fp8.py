"""sglang.shared-kv-fp8, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, KV_SCALES

_GEMMA4 = ("Gemma4ForConditionalGeneration", "Gemma4ForCausalLM", "Gemma4UnifiedForConditionalGeneration")

BUG = KnownBug(
    id="sglang.shared-kv-fp8",
    title="Gemma 3n, Gemma 4 E2B and E4B end the server on triton with an FP8 KV cache",
    symptom="The first prompt ends in a CompilationError of tl.dot: layers that reuse KV hand FP8 keys to the kernel.",
    symptoms=(DIES, KV_SCALES),
    releases=(">=0.5.11,<=0.5.23",),
    code=("sglang.srt.layers.attention.triton_backend:TritonAttnBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=22615, issue=22277),
    harm=CRASH,
    hits=AllOf(
        AnyOf(
            Is("architecture", "Gemma3nForConditionalGeneration", "Gemma3nForCausalLM", "IQuestLoopCoderForCausalLM"),
            AllOf(Is("architecture", *_GEMMA4), Unseen("whether layers share KV (num_kv_shared_layers above 0)")),
        ),
        Is("prefill backend", "triton"),
        Not(Is("deterministic inference", ON)),
        AnyOf(Is("--kv-cache-dtype", "fp8_e4m3", "fp8_e5m2"), Is("KV cache scales", "calibrated FP8")),
    ),
    avoid="Set `--kv-cache-dtype bf16`.",
)
