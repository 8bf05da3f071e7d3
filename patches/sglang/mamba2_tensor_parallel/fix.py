"""sglang.mamba2-tensor-parallel, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, PARALLEL

from . import wrap

_LAYER = "sglang.srt.models.nemotron_h:NemotronHMambaDecoderLayer"
_LINEAR = "sglang.srt.layers.linear:RowParallelLinear"

FIX = Fix(
    id="sglang.mamba2-tensor-parallel",
    title="Nemotron-H answers garbage on more than one GPU: Mamba2 layers do not add the ranks' parts",
    symptom="With tensor parallelism each answer is garbage; on one GPU answers are right.",
    symptoms=(GARBAGE, PARALLEL),
    cause="The output projection of a Mamba2 layer leaves the sum over ranks to its model. Nemotron-H adds none.",
    correction=(
        "The projection adds the parts, as from 0.5.6.post2 on. Falcon-H1, which adds them behind the layer, stays as it is. "
        "Servers with DP attention do, too."
    ),
    upstream=Upstream("sgl-project/sglang", pull=14811),
    hardware="any GPU (Nemotron-H with tensor parallelism)",
    default=True,
    default_reason="garbage for each request; fixed upstream to the same effect",
    ranks_alike=True,
    targets=(Target(wrap.init, needed=wrap.on_several_ranks, paths=(f"{_LAYER}.__init__",)),),
    # The sum over ranks, and its place
    witnesses=(
        f"{_LAYER}.forward",
        "sglang.srt.layers.attention.mamba.mamba:MambaMixer2.__init__",
        "sglang.srt.layers.attention.mamba.mamba:MambaMixer2.forward",
        f"{_LINEAR}.__init__",
        f"{_LINEAR}.forward",
    ),
    cost="One all-reduce for each Mamba2 layer, as one GPU's answers need.",
    avoid="Leave --tp-size at 1.",
    expect="On one replica, answers at temperature 0 become those of one GPU, or of 0.5.6.post2.",
    stays_out=Is("--enable-dp-attention", "on"),
    hits=AllOf(Is("architecture", "NemotronHForCausalLM", "NemotronH_Nano_VL_V2"), Is("ranks that share a layer", ON)),
)
