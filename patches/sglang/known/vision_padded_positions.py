"""sglang.vision-padded-positions, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, IMAGES, PARALLEL

BUG = KnownBug(
    id="sglang.vision-padded-positions",
    title="Qwen-VL and GLM-V end with data-parallel attention: positions are padded along the wrong dimension",
    symptom="The server ends while it pads a batch, often at its first batch of fewer than three requests.",
    symptoms=(DIES, IMAGES, PARALLEL),
    releases=(">=0.5.1,<0.5.9",),
    code=(
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch._pad_inputs_to_size",
        "sglang.srt.model_executor.forward_batch_info:ForwardBatch.prepare_mlp_sync_batch",
    ),
    upstream=Upstream("sgl-project/sglang", pull=17624, issue=17014),
    harm=CRASH,
    hits=AllOf(
        Is("M-RoPE", ON),
        Given("--enable-dp-attention"),
        Not(Is("--dp-size", "off", "1")),
    ),
    avoid="Leave --enable-dp-attention out.",
)
