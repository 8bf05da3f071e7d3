"""sglang.falcon-h1-tensor-parallel, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL

from . import wrap

_LAYER = "sglang.srt.models.falcon_h1:FalconH1HybridAttentionDecoderLayer"
_LINEAR = "sglang.srt.layers.linear:RowParallelLinear"

FIX = Fix(
    id="sglang.falcon-h1-tensor-parallel",
    title="Falcon-H1 answers garbage on more than one GPU: the sum of Mamba2 layers counts once for each rank",
    symptom="With tensor parallelism Falcon-H1 answers garbage; on one GPU it answers well.",
    symptoms=(GARBAGE, PARALLEL),
    cause=(
        "The output projection of a Mamba2 layer adds the ranks' parts. Falcon-H1 adds attention's part to that sum, and then "
        "adds the ranks' sums once more."
    ),
    correction="The projection leaves the sum to its layer, as from 0.5.21 on. Servers with DP attention stay as they are.",
    upstream=Upstream("sgl-project/sglang", pull=14811),  # which made the projection add
    hardware="any GPU (Falcon-H1 with tensor parallelism)",
    default=True,
    default_reason="garbage for each request; later releases leave the sum to the layer, too",
    ranks_alike=True,
    targets=(Target(wrap.init, paths=(f"{_LAYER}.__init__",)),),
    # Both sums over ranks
    witnesses=(
        f"{_LAYER}.forward",
        f"{_LAYER}.self_attention",
        "sglang.srt.layers.attention.mamba.mamba:MambaMixer2.__init__",
        "sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",
        "sglang.srt.layers.communicator:LayerCommunicator.prepare_mlp",
        f"{_LINEAR}.__init__",
        f"{_LINEAR}.forward",
    ),
    cost="None: one all-reduce less for each layer.",
    avoid="Leave --tp-size at 1.",
    expect="On one replica, answers at temperature 0 become those of one GPU, or of 0.5.21.",
    hits=AllOf(
        Is("architecture", "FalconH1ForCausalLM"), Is("ranks that share a layer", ON), Is("groups of ranks that attend", "off")
    ),
)
