"""sglang.vision-padded-positions, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, IMAGES, PARALLEL

from . import wrap

_BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"

FIX = Fix(
    id="sglang.vision-padded-positions",
    title="Qwen-VL and GLM-V end where ranks share batches: positions are padded along the wrong dimension",
    symptom=(
        "The server ends at its first batch of one or two requests: `Trying to create tensor with negative dimension`. Its "
        "model has M-RoPE, its ranks share batches."
    ),
    symptoms=(DIES, IMAGES, PARALLEL),
    cause=(
        "Positions of M-RoPE are [3, tokens]. A batch of a server whose ranks share batches is padded; its positions get more "
        "rows, up to the number of requests, and not more columns."
    ),
    correction=(
        "The three rows get a column of zeros for each token of padding, as upstream does from 0.5.9 on. Models without M-RoPE "
        "are left alone. Servers with data-parallel attention end as before: encoders of these releases would mix images of "
        "different ranks."
    ),
    upstream=Upstream("sgl-project/sglang", pull=17624, issue=17014),
    hardware="any GPU (models with M-RoPE; --moe-a2a-backend or --moe-dense-tp-size 1, without --enable-dp-attention)",
    default=True,
    default_reason="a crash; upstream has released the same, and a batch that was right keeps its positions",
    targets=(
        Target(
            wrap.pad,
            needed=wrap.has_three_rows,
            paths=(f"{_BATCH}._pad_inputs_to_size", f"{_BATCH}.prepare_mlp_sync_batch"),  # from 0.5.5.post3 on; before
        ),
    ),
    witnesses=(f"{_BATCH}._pad_tensor_to_size",),
    cost="One small launch for each batch that no CUDA graph serves.",
    avoid="Leave `--enable-dp-attention`, `--moe-a2a-backend` and `--moe-dense-tp-size` out.",
    expect="On one replica with a model and a launch that have ended so, without DP attention, the server answers requests.",
    harm=CRASH,
    stays_out=Is("groups of ranks that attend", ON),
    hits=AllOf(Is("M-RoPE", ON), Is("batches that ranks share", ON)),
)
