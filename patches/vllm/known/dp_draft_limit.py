"""vllm.dp-draft-limit, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.dp-draft-limit",
    title="All data parallel ranks hang once a request on one of them nears the context length (EAGLE, MTP)",
    symptom="A rank whose longest request has no room for its drafts skips the drafter, and the others wait for it for ever.",
    symptoms=(DIES, PARALLEL, SPECULATION, CONTEXT_LIMIT),
    releases=(">=0.11.0,<0.25.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.sample_tokens",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.execute_model",
    ),
    upstream=Upstream("vllm-project/vllm", pull=40589, issue=44185),
    hits=AllOf(
        Is("model runner", "V1"),
        Above("data parallel ranks", 1),
        Is("drafts from hidden states", ON),
        Unseen("a request whose drafts would exceed the drafter's context length, on one rank and not on all"),
    ),
    avoid="Start with a `--max-model-len` that no prompt and answer reach; a drafter with a shorter context has its own.",
    harm=CRASH,
)
