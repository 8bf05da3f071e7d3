"""sglang.pd-conv-slices, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.pd-conv-slices",
    title="Garbage of Qwen3.5 and Qwen3-Next with P/D between unequal TP sizes: channels are mixed up",
    symptom="Convolution states hold query, key and value, each cut by rank. The transfer cuts them as one.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.9,<0.5.16",),
    code=("sglang.srt.disaggregation.mooncake.conn:MooncakeKVManager._send_mamba_state_slice",),
    upstream=Upstream("sgl-project/sglang", pull=30997, issue=23746),
    hits=AllOf(
        Is(
            "architecture",
            *("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            "InternS2PreviewForConditionalGeneration",
        ),
        Is("--disaggregation-mode", "prefill", "decode"),
        Unseen("whether the attention TP sizes of the two servers differ"),
    ),
    avoid="Give both servers the same attention TP size.",
)
