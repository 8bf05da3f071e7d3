"""sglang.mamba2-prefill-graph, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"
_EXECUTOR = "sglang.srt.model_executor"
_BACKEND = f"{_EXECUTOR}.runner_backend.breakable_cuda_graph_backend:BreakableCudaGraphBackend"

FIX = Fix(
    id="sglang.mamba2-prefill-graph",
    title="The first prompt ends the server of a Falcon-H1 with its default graphs",
    symptom=(
        "A Falcon-H1 starts, captures its graphs, and dies at the first prompt of an illegal memory access. So does a "
        "NemotronH with --enable-dp-attention in 0.5.18."
    ),
    symptoms=(DIES, GARBAGE),
    cause=(
        "Prompts run in a CUDA graph with breaks, in which attention runs eagerly. These Mamba2 layers have no break of their "
        "own: the graph holds them with the slots and lengths of the batch at capture."
    ),
    correction="The Mamba2 layer becomes a break of the graph, too, as upstream has it for NemotronH.",
    upstream=Upstream("sgl-project/sglang", pull=34561, report="sglang-mamba2-prefill-graph"),
    hardware="NVIDIA GPUs (Falcon-H1, NemotronH with DP attention; a breakable prefill graph, the default)",
    harm=CRASH,
    ranks_alike=True,
    default=True,
    default_reason="the server dies at the first prompt",
    targets=(Target(wrap.capture_one, needed=wrap.has_mamba2, paths=(f"{_BACKEND}.capture_one",)),),
    # How a graph breaks, which batch a replay has, and whether the model has a break of its own
    witnesses=(
        f"{wrap.BREAKS}:eager_on_graph",
        f"{wrap.BREAKS}:BreakableCUDAGraph.__init__",
        f"{wrap.BREAKS}:BreakableCUDAGraph.replay",
        f"{wrap.BREAKS}:BreakableCUDAGraphCapture",
        f"{wrap.CONTEXT}:get_tc_piecewise_forward_context",
        f"{_LINEAR}:Mamba2AttnBackend.forward",
        "sglang.srt.models.falcon_h1:FalconH1HybridAttentionDecoderLayer.forward",
        # What a capture runs of its own
        *(f"{_BACKEND}.{name}" for name in ("_alloc_full_buffer", "_copy_output_to_buffer", "_output_rows", "_slice_output")),
        f"{_EXECUTOR}.runner_utils.pool:GraphPoolPrecarve",
        f"{_EXECUTOR}.runner_utils.pool:graph_pool_capture_scope",
    ),
    examined=(">=0.5.15",),
    cost="One break more for each Mamba2 layer, whose kernels are launched as without a graph. Graphs take as much memory.",
    avoid="Start with `--cuda-graph-backend-prefill disabled`: prompts run without a graph; short ones take longer.",
    expect="On one replica, the first prompt is answered.",
    hits=AllOf(Is("Mamba2 layers without a break of their own", ON), Is("prefill graph with breaks", ON)),
)
