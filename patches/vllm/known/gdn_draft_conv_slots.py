"""vllm.gdn-draft-conv-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.gdn-draft-conv-slots",
    title="Qwen3-Next with MTP mixes up prompts that are prefilled in one step",
    symptom="Answers are garbage where two prompts start together: convolutions of the second use a state slot of the first.",
    symptoms=(
        SPECULATION,
        SHARED_BATCH,
        GARBAGE,
    ),
    releases=(">=0.10.2,<0.11.0",),
    code=("vllm.model_executor.layers.mamba.ops.causal_conv1d:causal_conv1d_fn",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("speculative decoding", ON),
        Unseen("two prompts in a step that verifies no drafts"),
    ),
    avoid="Leave out --speculative-config.",
)
