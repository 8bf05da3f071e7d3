"""vllm.both-empty-merge-cuda, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH
from attnfix.patches.vllm.shared import both_empty
from attnfix.patches.vllm.shared.context_path import COMPUTING

from . import wrap

FIX = Fix(
    id="vllm.both-empty-merge-cuda",
    title="Garbage for a fresh prompt beside one with long cached context (MLA)",
    symptom=(
        "Garbage from DeepSeek-type models, often one token repeated. It hits a fresh prompt that shares a prefill batch with "
        "one whose cached context takes more than one chunk. No error, and nothing in the log."
    ),
    symptoms=(SHARED_BATCH, GARBAGE),
    cause=(
        "A request without context is empty in every chunk, with an LSE of -inf (FlashAttention 3) or +inf (2). The CUDA op "
        "`merge_attn_states` subtracts the larger of two such LSEs from both: -inf minus -inf is NaN, in output and LSE, and "
        "the final merge hands it on. The op of 0.11.1 lets the prefix pass there."
    ),
    correction="After the loop over the chunks, rows of requests without context get output 0 and LSE -inf, in place.",
    upstream=Upstream("vllm-project/vllm", pull=28181, issue=27491),
    hardware="NVIDIA GPUs with MLA prefill, any backend (V1 engine)",
    default=True,
    default_reason="silent wrong output; later releases give the same result",
    targets=(
        Target(wrap.compute_prefill_context, needed=wrap.merges_empty_chunks, paths=both_empty.PLAIN),
        Target(wrap.compute_prefill_context, needed=wrap.merges_empty_chunks, paths=both_empty.OF_RANKS),
    ),
    # The op is compiled, and no Python tells whether it has the guard: the wrapper around it and the engine's entry, which
    # were rewritten in 0.11.1, stand for it. Beside an op that has it, the correction writes what is there already. And what
    # the loops call.
    witnesses=(
        "vllm._custom_ops:merge_attn_states",
        *(f"{entry}:merge_attn_states" for entry in both_empty.ENTRIES),
        *COMPUTING,
        "vllm.v1.attention.backends.mla.common:MLACommonImpl._run_prefill_context_chunk_fa",
    ),
    cost=(
        "A look at a host tensor per layer and prefill. One kernel launch per layer in a batch with a fresh prompt and several "
        "chunks; its time grows with the fresh prompts' tokens alone."
    ),
    avoid=(
        "Start with `--no-enable-prefix-caching --no-enable-chunked-prefill`: no prefill meets cached context; "
        "prompts are computed whole."
    ),
    expect=(
        "On one replica, send a long prompt twice (the second time its prefix is cached, in more than one chunk) beside short "
        "fresh ones: stock, the short ones are answered with garbage; fixed, as if sent alone. Nothing else changes."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(Is("attention", "MLA"), Is("GPU", "NVIDIA"), Is("engine core", "V1"), Is("cached prefix", ON)),
)
