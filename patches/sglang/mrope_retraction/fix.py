"""sglang.mrope-retraction, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, IMAGES

from . import wrap

_REQUEST = "sglang.srt.managers.schedule_batch:Req"

FIX = Fix(
    id="sglang.mrope-retraction",
    title="Qwen-VL and GLM-V models end when a request with an image is taken back for want of KV memory",
    symptom="The request starts again with its answer so far, which has no positions. The server ends in a wrong shape.",
    symptoms=(DIES, IMAGES),
    cause=(
        "A request with images has positions of M-RoPE for its prompt alone. One that was taken back prefills its answer so "
        "far, too, and its batch has fewer positions than tokens."
    ),
    correction=(
        "Each token of the answer gets the position that it had in decode. Upstream extends the positions from 0.5.6 on. Other "
        "requests are left alone."
    ),
    upstream=Upstream("sgl-project/sglang", pull=13700, issue=12722),
    hardware="any GPU (models with M-RoPE, images, a full KV pool)",
    default=True,
    default_reason="a crash; upstream has released the same, and only requests that were taken back are touched",
    targets=(
        Target(
            wrap.init_next_round_input,
            needed=wrap.lacks_positions,
            paths=(f"{_REQUEST}.init_next_round_input",),
        ),
    ),
    # The way of a request back into the queue, and a batch's reading of it
    witnesses=(
        f"{_REQUEST}.reset_for_retract",
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch._compute_mrope_positions",
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch._compute_mrope_positions_extend",
        "sglang.srt.managers.mm_utils:extend_mrope_positions_for_retracted_request",
    ),
    cost="A small tensor on the host, once for each request that is taken back.",
    avoid="Nothing within the release avoids it; take release 0.5.6.",
    expect=(
        "On one replica with a small `--max-total-tokens`, send requests with images until the log says that some were "
        "retracted: stock ends, fixed answers all of them."
    ),
    harm=CRASH,
    hits=AllOf(Is("M-RoPE", ON), Is("answers that are prefilled again", ON)),
)
