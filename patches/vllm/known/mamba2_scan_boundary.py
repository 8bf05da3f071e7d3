"""vllm.mamba2-scan-boundary, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="vllm.mamba2-scan-boundary",
    title="Prompts that are prefilled together weigh their past too much (Mamba2)",
    symptom=(
        "Answers are worse where one of several prompts in a step continues: rows behind the first tile start from a "
        "wrong decay."
    ),
    symptoms=(
        SHARED_BATCH,
        LONG_PROMPT,
    ),
    releases=(">=0.10.0,<0.10.1",),
    code=("vllm.model_executor.layers.mamba.ops.ssd_chunk_scan:_chunk_scan_fwd_kernel",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("Mamba2 layers", ON), Unseen("a step with several prompts, of which one continues")),
    avoid="Raise `--max-num-batched-tokens`, so that prompts are prefilled in one step.",
)
