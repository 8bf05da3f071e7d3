"""vllm.pooling-chunk-race, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="vllm.pooling-chunk-race",
    title="Scores and embeddings of long prompts are wrong: a chunk runs with the next one's inputs (pooling)",
    symptom="After a step in which no prompt ends nobody waits for the GPU, and its inputs are overwritten on their way there.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.14.0,<0.26.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._pool",),
    upstream=Upstream("vllm-project/vllm", pull=48901, issue=48831),
    hits=AllOf(
        Not(Is("--runner", "generate", "draft")),
        Not(Given("--async-scheduling")),
        AnyOf(Since("0.20.0"), Is("async scheduling", OFF)),
        Unseen("a model served for pooling, whose prompts may be chunked"),
        Unseen("prompts of several chunks, so longer than --max-num-batched-tokens or beside others that fill it"),
    ),
    avoid="Start with `--no-enable-chunked-prefill`, so that each prompt is one chunk.",
)
