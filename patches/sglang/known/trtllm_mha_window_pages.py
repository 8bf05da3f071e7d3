"""sglang.trtllm-mha-window-pages, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_BACKEND = "sglang.srt.layers.attention.trtllm_mha_backend:TRTLLMHAAttnBackend"

BUG = KnownBug(
    id="sglang.trtllm-mha-window-pages",
    title="Garbage from models with a KV pool of their own for window layers (TRT-LLM MHA)",
    symptom="Answers of Llama 4 and MiMo-V2 are garbage on Blackwell: window layers read pages of the other pool.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.7,<0.5.9",),
    code=(f"{_BACKEND}.forward_decode", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang", pull=18970, issue=17429),
    hits=AllOf(
        AnyOf(Is("prefill backend", "trtllm_mha"), Is("decode backend", "trtllm_mha")),
        Is("sliding-window KV pool", ON),
    ),
    avoid="Set `--disable-hybrid-swa-memory`, or for MiMo-V2 `--attention-backend triton`.",
)
