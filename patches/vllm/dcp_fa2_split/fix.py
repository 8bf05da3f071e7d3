"""vllm.dcp-fa2-split, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL

from . import wrap

_FLASH = "vllm.v1.attention.backends.flash_attn"
_BUILDER, _IMPL = f"{_FLASH}:FlashAttentionMetadataBuilder", f"{_FLASH}:FlashAttentionImpl"
_CP, _UTILS = "vllm.v1.worker.cp_utils", "vllm.v1.attention.backends.utils"

FIX = Fix(
    id="vllm.dcp-fa2-split",
    title="A long prompt loses its beginning with decode context parallelism (FlashAttention 2)",
    symptom=(
        "A long prompt is answered as if its beginning were not there. It happens where a new, shorter prompt came beside its "
        "last part. The server runs --decode-context-parallel-size above 1 and FLASH_ATTN on FlashAttention 2. No error."
    ),
    symptoms=(PARALLEL, GARBAGE),
    cause=(
        "A step with prompts is split for FlashAttention 2: only requests before the first new prompt count as having a "
        "context. Nobody sorts the batch that way. Requests behind that prompt attend to their new tokens alone."
    ),
    correction=(
        "Where a request with a context stands behind those that are counted, the cache is read for all up to the last such "
        "request. New prompts among them, for which the kernel is wrong, are given one key each, and what it found there is "
        "replaced by what attention to nothing gives. A batch in order is left as it is."
    ),
    upstream=Upstream("vllm-project/vllm", report="vllm-dcp-fa2-split"),
    hardware="two NVIDIA GPUs or more on FlashAttention 2 (FLASH_ATTN, --decode-context-parallel-size above 1, without MLA)",
    default=True,
    default_reason="silent wrong output; two H200s served with and without it, and where stock is right it has stock's bits",
    targets=(
        Target(wrap.build, needed=wrap.on_flash_attention_2, paths=(f"{_BUILDER}.build",)),
        Target(
            wrap.run_split,
            needed=wrap.leaves_out_contexts,
            paths=(f"{_CP}:run_split_fa2_dcp_context_attention",),
            repeatable=True,
        ),
    ),
    # Who counts, and who reads the counts
    witnesses=(
        f"{_BUILDER}.__init__",
        f"{_IMPL}.__init__",
        f"{_IMPL}._forward_with_dcp",
        f"{_FLASH}:FlashAttentionMetadata",
        f"{_CP}:split_dcp_context_queries",
        f"{_CP}:should_split_fa2_dcp_context_attention",
        f"{_CP}:should_skip_dcp_context_attention",
        f"{_UTILS}:get_dcp_local_seq_lens",
        f"{_UTILS}:split_decodes_prefills_and_extends",
    ),
    remove_when="a release of vLLM is served that splits by the requests themselves: attnfix then sees it and does nothing",
    cost=(
        "Some µs of host time per step with prompts and group of layers, of small tensors on the host. Two small launches per "
        "layer of a step that is corrected."
    ),
    avoid=(
        "Start from 0.30.0 with `--attention-backend FLASHINFER`; below, serve without DCP. On Hopper leave "
        "`--attention-config.flash_attn_version` unset."
    ),
    expect=(
        "On one replica under load with --decode-context-parallel-size above 1, answers to long prompts become those of the "
        "same model without it. A single request answers as before, bit for bit."
    ),
    look_does="its look reads what a correction stored",
    hits=AllOf(
        Is("attention", "MHA"),
        Above("decode context parallel size", 1),
        Is("attention backend", "FLASH_ATTN"),
        Is("FlashAttention of FLASH_ATTN", "2"),
    ),
)
