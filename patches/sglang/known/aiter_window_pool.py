"""sglang.aiter-window-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES, GARBAGE

_BACKEND = "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend"

BUG = KnownBug(
    id="sglang.aiter-window-pool",
    title="Garbage or a memory fault on AMD: window layers use slots of the other KV pool (AITER)",
    symptom="Up to 0.5.9 window layers read wrong slots. From 0.5.10 on Llama 4 writes behind the end of the smaller pool.",
    symptoms=(GARBAGE, DIES, BACKEND),
    releases=(">=0.5.8,<=0.5.23",),
    code=(f"{_BACKEND}.forward_decode", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang", pull=6563),
    hits=AllOf(
        AnyOf(Is("prefill backend", "aiter"), Is("decode backend", "aiter")),
        AnyOf(
            Is("architecture", "Llama4ForConditionalGeneration"),
            AllOf(Is("architecture", "Step3p5ForCausalLM"), Not(Since("0.5.10"))),
        ),
        Is("sliding-window KV pool", ON),
    ),
    avoid="Set `--disable-hybrid-swa-memory`.",
)
