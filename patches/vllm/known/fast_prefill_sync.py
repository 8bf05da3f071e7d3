"""vllm.fast-prefill-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

_GEMMA4 = "Gemma4ForCausalLM", "Gemma4ForConditionalGeneration", "Gemma4UnifiedForConditionalGeneration"
BUG = KnownBug(
    id="vllm.fast-prefill-sync",
    title="Each step with a prompt waits for the GPU twice with --kv-sharing-fast-prefill (Gemma-3n, Gemma-4)",
    symptom="Throughput is lower than necessary: sums of tokens that the host knows are read back from the GPU.",
    symptoms=(SLOW,),
    releases=(">=0.10.2,<0.28.0",),
    code=("vllm.v1.attention.backends.utils:make_kv_sharing_fast_prefill_common_attn_metadata",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("--kv-sharing-fast-prefill", ON),
        AnyOf(
            Is("architecture", "Gemma3nForCausalLM", "Gemma3nForConditionalGeneration"),
            AllOf(
                Is("architecture", *_GEMMA4),
                Unseen("num_kv_shared_layers above 0 in config.json"),
            ),
        ),
    ),
    avoid="Start without `--kv-sharing-fast-prefill`.",
    harm=SLOWER,
)
