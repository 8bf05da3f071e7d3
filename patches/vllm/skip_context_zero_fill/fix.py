"""vllm.skip-context-zero-fill, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import SLOW

from . import wrap

_COMMON = "vllm.v1.attention.backends.mla.common"
_MLA = "vllm.model_executor.layers.attention.mla_attention"

FIX = Fix(
    id="vllm.skip-context-zero-fill",
    title="Slower prefill of cached contexts: outputs are written twice (MLA)",
    symptom="Time lost in prefill of requests with cached context: the output of every chunk of every layer is written twice.",
    symptoms=(SLOW,),
    cause=(
        "The TRT-LLM ragged kernel leaves rows of requests without context untouched; so that these come out right, the engine "
        "zero-fills all rows before each chunk, and the whole workspace, too (FlashInfer issue 2409)."
    ),
    correction=(
        "The chunk's output is allocated without a fill, and rows without context get output 0 and LSE -inf. The workspace is "
        "filled as before: that it need not be has not been seen on the hardware."
    ),
    upstream=Upstream("vllm-project/vllm", pull=36540),
    hardware="Blackwell (TRT-LLM ragged MLA prefill: default on SM100 in 0.16-0.17 and 0.18.1, else opt-in)",
    default_reason="performance alone; results stay as they are",
    targets=(
        Target(
            wrap.run_prefill_context_chunk,
            needed=wrap.runs_by_itself,
            paths=(
                f"{_COMMON}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
                f"{_MLA}:MLACommonImpl._run_prefill_context_chunk_trtllm_ragged",
            ),
            repeatable=True,
        ),
    ),
    # Who calls it, how its output is merged, and what of the batch it is told
    witnesses=(
        f"{_COMMON}:MLACommonImpl._compute_prefill_context",
        f"{_COMMON}:MLACommonImpl._context_parallel_compute_prefill_context",
        f"{_COMMON}:MLACommonImpl._forward_prefill",
        f"{_COMMON}:MLACommonMetadataBuilder.build",
        f"{_MLA}:MLACommonImpl._compute_prefill_context",
        f"{_MLA}:MLACommonImpl._context_parallel_compute_prefill_context",
        f"{_MLA}:MLACommonImpl._forward_prefill",
        f"{_MLA}:MLACommonImpl.forward_mha",
        f"{_MLA}:MLACommonMetadataBuilder.build",
    ),
    cost=(
        "One launch less per chunk and layer, or the same number where rows without context are neutralised. Saved on an H200: "
        "83 µs per chunk and layer at 8192 tokens x 128 heads (268 MB), 6 µs at 2048 x 16. Kept: the workspace fill, 126 µs."
    ),
    avoid=(
        "Take another prefill: `--attention-config.use_trtllm_ragged_deepseek_prefill false "
        "--attention-config.disable_flashinfer_prefill true`; below 0.17.0 FlashAttention 2 loses more than the "
        "fills."
    ),
    expect="No shift in output: on one replica, compare time to first token of long prompts whose prefix is cached.",
    harm=SLOWER,
    hits=AllOf(Is("attention", "MLA"), Is("MLA prefill backend", "trtllm_ragged"), Is("cached prefix", ON)),
)
