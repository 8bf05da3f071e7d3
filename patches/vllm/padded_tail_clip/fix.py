"""vllm.padded-tail-clip, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH, SPECULATION

from . import wrap

_SCHEDULER = "vllm.v1.core.sched.scheduler"

FIX = Fix(
    id="vllm.padded-tail-clip",
    title="An answer begins with tokens of another request (hybrid models with drafts, behind a cached prompt)",
    symptom=(
        "A hybrid model with speculative decoding begins an answer with another request's text, or loses count of its tokens. "
        "One token of the prompt was left where a block ends. No error."
    ),
    symptoms=(SHARED_BATCH, CACHED_PREFIX, SPECULATION),
    cause=(
        "Beside decodes, the scheduler pads the last token of a prompt with a placeholder for each draft. With "
        "`mamba_cache_mode` align it then cuts the row off at the end of its block, but keeps all placeholders on its list. "
        "The runner reads an output for each of them, and so begins in the row before; the scheduler takes back tokens that "
        "it had not given."
    ),
    correction=(
        "A padded row stays whole, as in the middle of a block, and as a request that was preempted has it. It is a "
        "verification, and these cross the ends of blocks in every answer. With Mamba2, vllm.mamba2-padded-tail leaves the "
        "placeholders out in the first place."
    ),
    upstream=Upstream("vllm-project/vllm", issue=54392),
    hardware="any GPU (hybrid models with speculative decoding)",
    default=True,
    default_reason="silent wrong output that 0.29.0 corrects; the engine schedules such rows whole in all other places",
    targets=(
        Target(
            wrap.block_aligned,
            needed=wrap.is_padded,
            paths=(f"{_SCHEDULER}:Scheduler._mamba_block_aligned_split",),
        ),
    ),
    # Which rows are padded, and what is done with a row that was cut off
    witnesses=(f"{_SCHEDULER}:Scheduler.schedule", "vllm.v1.request:Request.num_tokens"),
    cost=(
        "Under a µs for each chunk of a prompt in mode align. A step with a corrected row stays uniform, so its full CUDA "
        "graph is replayed."
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without `--speculative-config`.",
    expect=(
        "On one replica that gets its prompts through a KV connector, send prompts whose length is a multiple of the block, "
        "beside others: fixed, each is answered as it is alone."
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("drafts by batch size", OFF),
        Is("cache mode of states", "align"),
        Is("last tokens that end with a block", ON),
    ),
)
