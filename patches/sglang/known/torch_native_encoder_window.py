"""sglang.torch-native-encoder-window, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

_BACKEND = "sglang.srt.layers.attention.torch_native_backend:TorchNativeAttnBackend"

BUG = KnownBug(
    id="sglang.torch-native-encoder-window",
    title="Wrong embeddings of longer texts from EmbeddingGemma 2 on torch_native: windows are ignored",
    symptom="Embeddings of texts above 513 tokens differ from those of triton; those of shorter texts do not.",
    symptoms=(LONG_PROMPT, BACKEND),
    releases=(">=0.5.22,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=39298, issue=33603),
    hits=AllOf(
        Is("architecture", "EmbeddingGemma2Model"),
        Is("prefill backend", "torch_native"),
        Unseen("whether texts are longer than 513 tokens"),
    ),
    avoid="Name no attention backend, so that triton serves the model.",
)
