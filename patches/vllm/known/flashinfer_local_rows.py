"""vllm.flashinfer-local-rows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES

BUG = KnownBug(
    id="vllm.flashinfer-local-rows",
    title="Llama 4 dies on a long prompt: buffers have a row for each request, not for each chunk (FlashInfer)",
    symptom="A prefill of several chunks of local attention fails with `provided out is the wrong size for the accumulation`.",
    symptoms=(DIES, CONTEXT_LIMIT),
    releases=(">=0.10.1,<=0.33.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=50022, issue=49980),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration", "Llama4ForCausalLM"),
        Is("kernels of the attention backend", "FlashInfer"),
        Unseen("a step of more chunks than --max-num-seqs, as of a long prompt where few requests run at once"),
    ),
    avoid="Raise `--max-num-seqs`, lower `--max-num-batched-tokens`, or choose another attention backend.",
    harm=CRASH,
)
