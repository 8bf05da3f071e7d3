"""vllm.placeholder-drafts, as data. One GPU: vllm.stale-draft-placeholders."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH, SPECULATION

_SAMPLER = "vllm.v1.sample.rejection_sampler"

BUG = KnownBug(
    id="vllm.placeholder-drafts",
    title="A draft of -1 may be accepted on several GPUs: the kernel reads a probability of another token",
    symptom="Under load, a rare answer of a server with drafts and tensor parallelism lacks a token.",
    symptoms=(SHARED_BATCH, SPECULATION),
    releases=(">=0.11.1,<0.25.0",),
    code=(f"{_SAMPLER}:rejection_random_sample_kernel",),
    upstream=Upstream("vllm-project/vllm", pull=46533, issue=37159),
    hits=AllOf(
        Is("model runner", "V1"),
        Is("async scheduling", ON),
        Is("speculative decoding", ON),
        Above("tensor parallel size", 1),
        Unseen("requests with a temperature that a step leaves out, as it has no room for them"),
    ),
    avoid="Start with `--no-async-scheduling`, or raise `--max-num-batched-tokens`.",
)
