"""vllm.gdn-prompt-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Since
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.gdn-prompt-sync",
    title="Each step with a prompt waits for the GPU (Gated DeltaNet, KDA, Mamba, LFM2)",
    symptom="Throughput is lower than necessary: lengths that the host has are copied back from the GPU, and the step waits.",
    symptoms=(SLOW,),
    releases=(">=0.11.0,<0.15.0",),
    code=("vllm.v1.attention.backends.utils:compute_causal_conv1d_metadata",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AnyOf(
        Is("architecture", "Qwen3NextForCausalLM", "KimiLinearForCausalLM"),
        Is("architecture", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration"),
        Is("Mamba2 layers", ON),
        AllOf(Since("0.14.0"), Is("architecture", "JambaForCausalLM", "MambaForCausalLM", "FalconMambaForCausalLM")),
    ),
    avoid="Nothing within the release avoids it; take release 0.15.0.",
    harm=SLOWER,
)
