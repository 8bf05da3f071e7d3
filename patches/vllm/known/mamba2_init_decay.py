"""vllm.mamba2-init-decay, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="vllm.mamba2-init-decay",
    title="A prompt continues from a faded state beside another prompt (Mamba2)",
    symptom="The second part of a prompt is answered worse in a step with other prompts: their tokens decay its state, too.",
    symptoms=(
        SHARED_BATCH,
        LONG_PROMPT,
    ),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.model_executor.layers.mamba.ops.ssd_state_passing:_state_passing_fwd_kernel",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("Mamba2 layers", ON), Unseen("a step in which another prompt stands before the second part of a prompt")),
    avoid="Raise `--max-num-batched-tokens`, so that prompts are prefilled in one step.",
)
