"""sglang.vision-idle-rank, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, IMAGES, PARALLEL

from . import wrap

_BATCH = "sglang.srt.model_executor.forward_batch_info:ForwardBatch"

FIX = Fix(
    id="sglang.vision-idle-rank",
    title="Qwen3-VL and GLM-4.5V end with data-parallel attention: an idle rank has padding without positions",
    symptom="The scheduler of a rank without requests ends with `'NoneType' object has no attribute 'ndim'`.",
    symptoms=(DIES, IMAGES, PARALLEL),
    cause=(
        "Positions of M-RoPE are [3, tokens]. The batch of a rank without requests has none. It is padded to the tokens of the "
        "others, and its model asks for positions of the padding."
    ),
    correction="A batch without tokens of its own gets three rows, which the engine pads with zeros, as upstream's does.",
    # The thread that makes padding [3, tokens]; the change of 0.5.23, which gives an idle batch its rows, has none that we know
    upstream=Upstream("sgl-project/sglang", pull=17624),
    hardware="any GPU (models with M-RoPE, --enable-dp-attention)",
    default=True,
    default_reason="a crash; from 0.5.23 on the engine makes the same rows, and a batch with requests keeps its positions",
    targets=(Target(wrap.pad, needed=wrap.lacks_positions, paths=(f"{_BATCH}._pad_inputs_to_size",)),),
    witnesses=(f"{_BATCH}.init_new", f"{_BATCH}._pad_tensor_to_size"),
    cost="One small tensor for each batch of a rank without requests that no CUDA graph serves.",
    avoid="Leave `--enable-dp-attention` out.",
    expect="On one replica that has ended so, a rank may be idle while others decode.",
    harm=CRASH,
    hits=AllOf(
        Is("M-RoPE", ON),
        Is("groups of ranks that attend", ON),
        Is("idle ranks outside CUDA graphs", ON),
    ),
)
