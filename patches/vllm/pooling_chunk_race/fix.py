"""vllm.pooling-chunk-race, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, Is, Not, Unseen
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT
from attnfix.patches.vllm.shared.input_prep import RUNNER, WAITS

from . import wrap

FIX = Fix(
    id="vllm.pooling-chunk-race",
    title="Scores and embeddings of long prompts are wrong: a chunk runs with the next one's inputs (pooling)",
    symptom=(
        "An embedding, a score or a class of a prompt that is computed in several chunks is unrelated to the prompt, and another "
        "one at the next try. No error."
    ),
    symptoms=(LONG_PROMPT,),
    cause=(
        "A step in which no prompt ends returns at once. The next steps overwrite pinned memory whose copies to the GPU wait "
        "behind the work of earlier steps."
    ),
    correction=(
        "A runner for pooling models gets the event that asynchronous scheduling has: a step is prepared once the copies of "
        "the last one have run. Unlike 0.26.0's own change, it does not wait for the end of the step."
    ),
    upstream=Upstream("vllm-project/vllm", pull=48901, issue=48831),
    hardware="NVIDIA and AMD GPUs (pooling models)",
    default=True,
    default_reason=(
        "silent wrong output; red to green on an H200 with the engine's own kernels, at 1.006 (0.999 to 1.013) times stock's "
        "tokens/s"
    ),
    targets=(Target(wrap.init, needed=wrap.pools, paths=(f"{RUNNER}:GPUModelRunner.__init__",)),),
    witnesses=(f"{RUNNER}:GPUModelRunner._pool", *WAITS),
    cost="One event for each step. The host waits only where it would overwrite what the GPU has not read yet.",
    avoid="Start with `--no-enable-chunked-prefill`, so that each prompt is one chunk.",
    expect=(
        "On one replica, embeddings of prompts longer than `--max-num-batched-tokens` become those of a server without "
        "chunked prefill, to rounding, at every try."
    ),
    hits=AllOf(
        Not(Is("--runner", "generate", "draft")),
        Is("pooling models ahead of results", OFF),
        Unseen("a model served for pooling, whose prompts may be chunked"),
        Unseen("prompts of several chunks, so longer than --max-num-batched-tokens or beside others that fill it"),
    ),
)
