"""sglang.torch-native-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_BACKEND = "sglang.srt.layers.attention.torch_native_backend:TorchNativeAttnBackend"

BUG = KnownBug(
    id="sglang.torch-native-window",
    title="Worse answers beyond the window on torch_native: window layers attend to the whole context",
    symptom="Answers of Gemma 2 or Gemma 3 get worse as soon as the context is longer than the window.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.1,<0.5.13",),
    code=(f"{_BACKEND}._run_sdpa_forward_extend", f"{_BACKEND}._run_sdpa_forward_decode"),
    upstream=Upstream("sgl-project/sglang", pull=26516),
    hits=AllOf(
        AnyOf(Is("prefill backend", "torch_native"), Is("decode backend", "torch_native")),
        Is("sliding-window layers", ON),
        Not(Is("architecture", "GptOssForCausalLM")),
    ),
    avoid="On a GPU, choose another attention backend, such as triton.",
)
