"""sglang.no-soft-cap, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

_ROOM = "sglang.srt.layers.attention"
_CLASSES = (
    f"{_ROOM}.trtllm_mha_backend:TRTLLMHAAttnBackend",
    f"{_ROOM}.torch_native_backend:TorchNativeAttnBackend",
    f"{_ROOM}.torch_flex_backend:TorchFlexAttnBackend",
)
_BACKENDS = "trtllm_mha", "torch_native", "flex_attention"
_GEMMA = "Gemma2ForCausalLM", "Gemma2ForSequenceClassification"

BUG = KnownBug(
    id="sglang.no-soft-cap",
    title="Worse answers of Gemma 2 and Grok on TRT-LLM MHA (B200) and PyTorch backends: no soft cap",
    symptom="Scores near the cap (50 of Gemma 2, 30 of Grok) weigh too much. TRT-LLM MHA is the default on B200 since 0.5.7.",
    symptoms=(BACKEND,),
    releases=(">=0.5.1,<=0.5.23",),
    code=tuple(f"{owner}.forward_{mode}" for owner in _CLASSES for mode in ("extend", "decode")),
    upstream=Upstream("sgl-project/sglang", issue=33915),
    hits=AllOf(
        AnyOf(
            Is("prefill backend", *_BACKENDS),
            Is("decode backend", *_BACKENDS),
            AllOf(Not(Since("0.5.10")), AnyOf(Is("prefill backend", "ascend"), Is("decode backend", "ascend"))),
        ),
        Is("architecture", *_GEMMA, "Grok1ForCausalLM", "Grok1ModelForCausalLM"),
    ),
    avoid="Set `--attention-backend triton`.",
)
