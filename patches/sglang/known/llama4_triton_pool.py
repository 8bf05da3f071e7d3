"""sglang.llama4-triton-pool, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, DIES, GARBAGE

_BACKEND = "sglang.srt.layers.attention.triton_backend:TritonAttnBackend"

BUG = KnownBug(
    id="sglang.llama4-triton-pool",
    title="Garbage or a memory fault of Llama 4 on Triton: chunked layers read slots of the other KV pool",
    symptom="Llama 4 answers well at first. Garbage begins once the two pools hand out different slots.",
    symptoms=(GARBAGE, DIES, BACKEND),
    releases=(">=0.5.2,<=0.5.23",),
    code=(f"{_BACKEND}.forward_extend", f"{_BACKEND}.forward_decode"),
    upstream=Upstream("sgl-project/sglang", pull=6563),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration"),
        AnyOf(Is("prefill backend", "triton"), Is("decode backend", "triton")),
        AnyOf(
            AllOf(Since("0.5.8"), Is("sliding-window KV pool", ON)),
            AllOf(Not(Since("0.5.8")), Given("--hybrid-kvcache-ratio")),
        ),
    ),
    avoid="Set `--disable-hybrid-swa-memory`. Up to 0.5.7, leave `--hybrid-kvcache-ratio` away.",
)
