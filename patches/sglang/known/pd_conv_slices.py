"""sglang.pd-conv-slices, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

_CONN = "sglang.srt.disaggregation"
_MODELS = (
    *("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
    *("InternS2PreviewForConditionalGeneration", "MiniCPMV4_6ForConditionalGeneration"),
    *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"),
)
_BACKEND = "--disaggregation-transfer-backend"

BUG = KnownBug(
    id="sglang.pd-conv-slices",
    title="Garbage of Qwen3.5 and Qwen3-Next with P/D between unequal TP sizes: channels are mixed up",
    symptom="Convolution states hold query, key and value, each cut by rank. The transfer cuts them as one.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.9,<0.5.22",),
    code=(
        f"{_CONN}.mooncake.conn:MooncakeKVManager._send_mamba_state_slice",
        f"{_CONN}.mori.conn:MoriKVManager._send_mamba_state",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30997, issue=23746),
    hits=AllOf(
        Is("architecture", *_MODELS),
        Is("--disaggregation-mode", "prefill", "decode"),
        AnyOf(
            AllOf(Not(Since("0.5.16")), Is(_BACKEND, "off", "mooncake", "mooncake_tcp", "ascend")),
            AllOf(Since("0.5.11"), Not(Since("0.5.16")), Is(_BACKEND, "nixl")),
            AllOf(Since("0.5.12"), Is(_BACKEND, "mori")),
        ),
        Unseen("whether the attention TP sizes of the two servers differ"),
    ),
    avoid="Give both servers the same attention TP size.",
)
