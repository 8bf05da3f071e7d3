"""sglang.vision-idle-rank, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES, PARALLEL

BUG = KnownBug(
    id="sglang.vision-idle-rank",
    title="Qwen3-VL and GLM-4.5V end with data-parallel attention: an idle rank has padding without positions",
    symptom="The scheduler of a rank without requests dies with \"'NoneType' object has no attribute 'ndim'\".",
    symptoms=(DIES, IMAGES, PARALLEL),
    releases=(">=0.5.9,<0.5.23",),
    code=("sglang.srt.model_executor.forward_batch_info:ForwardBatch.init_new",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("M-RoPE", ON),
        Given("--enable-dp-attention"),
        Not(Is("--dp-size", "off", "1")),
        AnyOf(
            Is("CUDA graphs", OFF),
            Unseen("whether a rank is idle while others decode batches above the largest graph"),
        ),
    ),
    avoid="Leave `--enable-dp-attention` out.",
    harm=CRASH,
)
