"""vllm.pooling-chunk-race, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_RUNNER = f"{wrap.RUNNER}:GPUModelRunner"

FIX = Fix(
    id="vllm.pooling-chunk-race",
    title="Scores and embeddings of long prompts are wrong: a chunk runs with the next one's inputs (pooling)",
    symptom=(
        "An embedding, a score or a class of a prompt that is computed in several chunks is unrelated to the prompt. The next "
        "try gives another one. No error."
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
    targets=(Target(wrap.init, needed=wrap.never_waits, paths=(f"{_RUNNER}.__init__",)),),
    witnesses=(
        f"{_RUNNER}._pool",
        f"{_RUNNER}.synchronize_input_prep",
        f"{_RUNNER}.execute_model",
        "vllm.v1.utils:CpuGpuBuffer.copy_to_gpu",
    ),
    cost=(
        "One event for each step. The host waits only where it would overwrite what the GPU has not read yet. On an H200, an "
        "embedding of two chunks comes 1.4 % later."
    ),
    worst_cost=WorstCost(1.006, 0.999, 1.013, "every prompt is embedded in four chunks", "h200-vllm-0.25.1"),
    avoid=(
        "Start with `--no-enable-chunked-prefill`, so that each prompt is one chunk. `--max-num-batched-tokens` must hold the "
        "longest prompt, or be left out."
    ),
    expect=(
        "On one replica, embeddings of prompts longer than `--max-num-batched-tokens` become those of a server without "
        "chunked prefill, to rounding, at every try."
    ),
    hits=AllOf(Is("runner", "pooling"), Is("prompts in chunks", ON), Is("pooling models ahead of results", OFF)),
)
