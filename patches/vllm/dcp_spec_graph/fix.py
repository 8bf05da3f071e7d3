"""vllm.dcp-spec-graph, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

from . import wrap

_MLA = "vllm.v1.attention.backends.mla"
_CONFIG = "vllm.config.compilation"
_COMMON = "vllm.model_executor.layers.attention.mla_attention", f"{_MLA}.common"
_BASE = "vllm.v1.attention.backend", "vllm.v1.attention.backends.utils"

FIX = Fix(
    id="vllm.dcp-spec-graph",
    title="No server starts with decode context parallelism, speculative decoding and FlashMLA",
    symptom=(
        "With --decode-context-parallel-size above 1 and speculative decoding (MTP, EAGLE, n-gram), a server with FLASHMLA "
        "ends while it captures CUDA graphs. Its AssertionError has no text. FLASHINFER_MLA is hit in 0.25.0-0.28.0, "
        "TRITON_MLA in 0.22.0-0.25.1 and from 0.31.0 on. With cudagraph_mode PIECEWISE it starts."
    ),
    symptoms=(DIES, PARALLEL, SPECULATION),
    cause=(
        "Under DCP these builders take only one token of a request as a decode: verifying drafts is a prefill to them. They "
        "still say that they support full graphs of uniform batches, so the runner captures graphs of 1 + k tokens per "
        "request. The builder asserts there that nothing is a prefill."
    ),
    correction=(
        "The runner is told that such a builder has graphs of one token per request. It then chooses piecewise graphs by "
        "itself, and says so in the log."
    ),
    upstream=Upstream("vllm-project/vllm", issue=45425, report="vllm-dcp-spec-graph"),
    hardware="two NVIDIA GPUs or more (Hopper with FLASHMLA; --decode-context-parallel-size above 1 and speculative decoding)",
    default=True,
    default_reason="a server that does not start; started and right with real kernels on an H200 (0.33.0)",
    targets=(
        Target(
            wrap.check_and_update_cudagraph_mode,
            needed=wrap.backend_of_one_token,
            paths=(
                f"{_CONFIG}:CompilationConfig.resolve_cudagraph_mode_and_sizes",
                "vllm.v1.worker.gpu_model_runner:GPUModelRunner._check_and_update_cudagraph_mode",
            ),
        ),
    ),
    # Who says what graphs there are, what is a decode, and who refuses. VllmConfig is none of them: where it turns full graphs
    # off under DCP (up to 0.12.0), nothing is corrected
    witnesses=(
        f"{_CONFIG}:CUDAGraphMode",
        *(
            f"{_CONFIG}:CompilationConfig.{name}"
            for name in (
                "splitting_ops_contain_attention",
                "adjust_cudagraph_sizes_for_spec_decode",
                "adjust_cudagraph_sizes_for_mamba_cache",
            )
        ),
        "vllm.v1.worker.cp_utils:check_attention_cp_compatibility",
        *(f"{module}:MLACommonMetadataBuilder.__init__" for module in _COMMON),
        *(f"{module}:MLACommonMetadataBuilder.build_for_cudagraph_capture" for module in _COMMON),
        *(f"{module}:AttentionMetadataBuilder._init_reorder_batch_threshold" for module in _BASE),
        *(f"{module}:AttentionMetadataBuilder.get_cudagraph_support" for module in _BASE),
        f"{_MLA}.flashmla:FlashMLAMetadataBuilder",
        f"{_MLA}.flashmla:FlashMLABackend.get_builder_cls",
        f"{_MLA}.flashattn_mla:FlashAttnMLABackend.get_builder_cls",
    ),
    remove_when="no vLLM is served that asks for these graphs; upstream issue 45425 is open",
    cost="None while serving; a look at the layers when the engine starts.",
    avoid=("Start with `--compilation-config.cudagraph_mode PIECEWISE`: no decode graph is captured; decode gets slower."),
    expect=(
        "On one replica with --decode-context-parallel-size above 1 and speculative decoding, the server starts. Its log says "
        "that the mode of CUDA graphs was set to PIECEWISE."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MLA"),
        Above("decode context parallel size", 1),
        Is("speculative decoding", ON),
        Is("full CUDA graphs", ON),
        Is("drafts under DCP", "prefills"),
    ),
    ranks_alike=True,
)
