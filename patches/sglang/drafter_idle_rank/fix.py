"""sglang.drafter-idle-rank, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

from . import wrap

_WORKER = "sglang.srt.speculative.multi_layer_eagle_worker_v2:MultiLayerEagleDraftWorker"
_RUNNERS = "sglang.srt.model_executor.runner"

FIX = Fix(
    id="sglang.drafter-idle-rank",
    title="Crash with DP attention, several draft layers and an idle rank, in steps outside CUDA graphs",
    symptom="The scheduler of a rank without requests ends with `max(): Expected reduction dim to be specified`.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    cause=(
        "Outside CUDA graphs, attention of each draft layer is planned before the batch is padded. The batch of an idle rank "
        "is empty then, and fa3, fa4 and aiter ask for the longest of no lengths."
    ),
    correction="An empty batch is not planned. The forward pass behind it plans its padded batch, as on stock.",
    upstream=Upstream("sgl-project/sglang", pull=33892),
    hardware="any GPU (DP attention, EAGLE with several draft layers on fa3, fa4 or aiter)",
    default=True,
    default_reason="a crash; upstream has released the same, and a rank with requests is left alone",
    targets=(Target(wrap.draft_extend_for_decode, needed=wrap.is_idle, paths=(f"{_WORKER}._draft_extend_for_decode",)),),
    # Plans of an empty batch, and of the padded one
    witnesses=(
        "sglang.srt.speculative.eagle_worker_common:prepare_for_draft_extend",
        f"{_RUNNERS}.eager_runner:EagerRunner._execute_idle",
        "sglang.srt.layers.attention.flashattention_backend:FlashAttentionBackend.init_forward_metadata",
        "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend.init_forward_metadata",
    ),
    cost="Two attributes are set for each draft layer, in steps of a rank without requests.",
    avoid="Leave out `--enable-dp-attention`, or speculative decoding.",
    expect="On one replica that has ended so, a rank may be idle while others decode.",
    harm=CRASH,
    hits=AllOf(
        Is("groups of ranks that attend", ON),
        Is("several draft layers", ON),
        Is("draft extend backend", "fa3", "fa4", "aiter"),
        Is("draft layers outside CUDA graphs", ON),
    ),
)
