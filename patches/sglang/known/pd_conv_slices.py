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
#: The window of their convolution comes first. Mooncake and NIXL cut along it up to 0.5.16, Mori up to 0.5.21
_KIMI = "KimiLinearForCausalLM"
_KDA = (_KIMI, "KimiK3ForConditionalGeneration", "KimiK3LinearForCausalLM", "BailingMoeV3ForCausalLM")
_CUTS = AnyOf(Not(Since("0.5.16")), AllOf(Not(Since("0.5.17")), Is("architecture", _KIMI)))
_BACKEND = "--disaggregation-transfer-backend"

BUG = KnownBug(
    id="sglang.pd-conv-slices",
    title="Garbage of Qwen3.5 and Kimi Linear with P/D between unequal TP sizes: channels are mixed up",
    symptom="Convolution states hold query, key and value, each cut by rank. The transfer cuts them as one.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.9,<0.5.22",),
    code=(
        f"{_CONN}.mooncake.conn:MooncakeKVManager._send_mamba_state_slice",
        f"{_CONN}.mori.conn:MoriKVManager._send_mamba_state",
    ),
    upstream=Upstream("sgl-project/sglang", pull=30997, issue=23746),
    hits=AllOf(
        Is("architecture", *_MODELS, *_KDA, "Glm5NextForConditionalGeneration"),
        Is("--disaggregation-mode", "prefill", "decode"),
        AnyOf(
            AllOf(_CUTS, Is(_BACKEND, "off", "mooncake", "mooncake_tcp", "ascend")),
            AllOf(Since("0.5.11"), _CUTS, Is(_BACKEND, "nixl")),
            AllOf(Since("0.5.12"), Is(_BACKEND, "mori")),
        ),
        Unseen("whether the attention TP sizes of the two servers differ"),
    ),
    avoid="Give both servers the same attention TP size.",
)
