"""sglang.ascend-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="sglang.ascend-window",
    title="Worse answers beyond the window on Ascend: window layers attend to the whole context",
    symptom="Answers of Gemma 2, Gemma 3 or Step-3.5 get worse as soon as the context is longer than the window.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<=0.5.23",),
    code=(
        "sglang.srt.layers.attention.ascend_backend:AscendAttnBackend.forward_extend",
        "sglang.srt.hardware_backend.npu.attention.ascend_backend:AscendAttnBackend.forward_extend",
    ),
    upstream=Upstream("sgl-project/sglang", pull=24582),
    hits=AllOf(
        AnyOf(Is("prefill backend", "ascend"), Is("decode backend", "ascend")),
        Is("sliding-window layers", ON),
        Not(Is("architecture", "GptOssForCausalLM", "MiMoV2FlashForCausalLM")),
        AnyOf(
            Not(Since("0.5.14")),
            AllOf(
                Is("sliding-window KV pool", OFF),
                AnyOf(Is("CUDA graphs", ON), Given("$ASCEND_USE_FIA"), Unseen("whether heads have 128 values or less")),
            ),
        ),
    ),
    avoid="Nothing within the release on Ascend; release 0.5.14 has it mended for Step-3.5, not for Gemma.",
)
