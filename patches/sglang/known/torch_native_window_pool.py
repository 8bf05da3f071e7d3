"""sglang.torch-native-window-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_BACKEND = "sglang.srt.layers.attention.torch_native_backend:TorchNativeAttnBackend"

BUG = KnownBug(
    id="sglang.torch-native-window-pool",
    title="Garbage on torch_native from models with a KV pool of their own for window layers",
    symptom="Answers of Step-3.5 turn into garbage once window slots are used again: reads take slots of the other pool.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.9,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang", pull=27617),
    hits=AllOf(
        AnyOf(Is("prefill backend", "torch_native"), Is("decode backend", "torch_native")),
        Is("sliding-window KV pool", ON),
        Not(Is("architecture", "GptOssForCausalLM")),
        Not(AllOf(Is("architecture", "Llama4ForConditionalGeneration"), Not(Is("--device", "cpu")))),
    ),
    avoid="Set `--attention-backend triton`.",
)
