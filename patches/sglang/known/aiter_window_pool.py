"""sglang.aiter-window-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES, GARBAGE

_BACKEND = "sglang.srt.layers.attention.aiter_backend:AiterAttnBackend"

BUG = KnownBug(
    id="sglang.aiter-window-pool",
    title="Garbage or a memory fault on AMD: window layers read slots of the other KV pool (AITER)",
    symptom="Llama 4 and MiMo-V2 answer well at first. Garbage begins once the two pools hand out different slots.",
    symptoms=(GARBAGE, DIES, BACKEND),
    releases=(">=0.5.8,<0.5.10",),
    code=(f"{_BACKEND}.forward_decode", f"{_BACKEND}.forward_extend"),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(Is("prefill backend", "aiter"), Is("decode backend", "aiter")),
        Is("sliding-window KV pool", ON),
    ),
    avoid="Set `--disable-hybrid-swa-memory`.",
)
