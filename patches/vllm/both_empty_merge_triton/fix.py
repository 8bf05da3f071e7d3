"""vllm.both-empty-merge-triton, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH
from attnfix.patches.vllm.shared import both_empty
from attnfix.patches.vllm.shared.context_path import COMPUTING

from . import wrap

_TRITON = ("vllm.attention.ops.triton_merge_attn_states", "vllm.v1.attention.ops.triton_merge_attn_states")

FIX = Fix(
    id="vllm.both-empty-merge-triton",
    title="Garbage for a fresh prompt beside one with long cached context (MLA on AMD and Intel)",
    symptom=(
        "Garbage from DeepSeek-type models on AMD and Intel GPUs, where the Triton kernel merges. It hits a fresh prompt that "
        "shares a prefill batch with one whose cached context takes more than one chunk. No error, and nothing in the log."
    ),
    symptoms=(SHARED_BATCH, GARBAGE),
    cause=(
        "A request without context is empty in every chunk, with an infinite LSE. The Triton kernel subtracts the larger of "
        "two such LSEs from both: -inf minus -inf is NaN, in output and LSE, and the final merge hands it on; from 0.20.0 only "
        "where the fresh prompt comes before one with context, since tokens behind the last context are left out there. "
        "0.26.0 guards the kernel."
    ),
    correction="After the loop over the chunks, rows of requests without context get output 0 and LSE -inf, in place.",
    upstream=Upstream("vllm-project/vllm", pull=49294, issue=27491),
    hardware="AMD and Intel GPUs with MLA prefill (NVIDIA GPUs merge by the CUDA op)",
    default=True,
    default_reason="silent wrong output; later releases give the same result",
    targets=(
        Target(wrap.compute_prefill_context, needed=wrap.merges_empty_chunks, paths=both_empty.PLAIN),
        Target(wrap.compute_prefill_context, needed=wrap.merges_empty_chunks, paths=both_empty.OF_RANKS),
    ),
    # The kernel and its launcher, the engine's entry, what the loops call, and their later home
    witnesses=(
        *(f"{module}:{name}" for module in _TRITON for name in ("merge_attn_states", "merge_attn_states_kernel")),
        *(f"{entry}:merge_attn_states" for entry in both_empty.ENTRIES),
        *COMPUTING,
        "vllm.v1.attention.backends.mla.common:MLACommonImpl._run_prefill_context_chunk_fa",
        f"{both_empty.MLA}:MLACommonImpl._run_prefill_context_chunk_fa",
        "vllm.v1.attention.backends.mla.prefill.flash_attn:FlashAttnPrefillBackend.run_prefill_context_chunk",
        "vllm.platforms.interface:Platform.fp8_dtype",
        f"{both_empty.MLA}:MLACommonBaseImpl._compute_prefill_context",
    ),
    remove_when="no vLLM below 0.26.0 is served on AMD or Intel GPUs",
    cost=(
        "A look at a host tensor per layer and prefill. Where the Triton kernel merges, in a batch with a fresh prompt and "
        "several chunks: a few torch operations per layer, since our own kernel runs on NVIDIA GPUs alone."
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
    hits=AllOf(Is("attention", "MLA"), Is("GPU", "AMD", "Intel"), Is("engine core", "V1"), Is("cached prefix", ON)),
)
