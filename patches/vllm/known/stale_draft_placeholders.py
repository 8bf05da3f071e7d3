"""vllm.stale-draft-placeholders, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.stale-draft-placeholders",
    title="Crash under load with drafts on one GPU (V1 model runner): a token of -1 is embedded",
    symptom="A request that one step leaves out comes back with placeholders for drafts; the embedding fails with `ind >= 0`.",
    symptoms=(DIES, SPECULATION, SHARED_BATCH),
    releases=(">=0.14.0,<0.25.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._preprocess",),
    upstream=Upstream("vllm-project/vllm", pull=46899, issue=37159),
    harm=CRASH,
    hits=AllOf(
        Is("model runner", "V1"),
        Is("async scheduling", ON),
        Is("speculative decoding", ON),
        Not(Above("--tensor-parallel-size", 1)),
        Unseen("a step whose budget of tokens or of encoder inputs ends before all running requests"),
    ),
    avoid="Start with `--no-async-scheduling`, or raise `--max-num-batched-tokens`.",
)
