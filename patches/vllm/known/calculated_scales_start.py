"""vllm.calculated-scales-start, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, KV_SCALES

BUG = KnownBug(
    id="vllm.calculated-scales-start",
    title="No server starts with --calculate-kv-scales",
    symptom="The first step of the start fails: 'NoneType' object has no attribute 'enable_kv_scales_calculation'.",
    symptoms=(DIES, KV_SCALES),
    releases=(">=0.10.0,<0.11.1",),
    code=("vllm.attention.layer:Attention.forward",),
    upstream=Upstream("vllm-project/vllm", pull=25513, issue=21640),
    hits=AllOf(
        Given("--calculate-kv-scales"),
        Is("engine core", "V1"),
        AnyOf(  # with an FP8 KV cache, 0.10 falls back to V0 on other GPUs
            Since("0.11.0"),
            Is("--kv-cache-dtype", OFF, "auto"),
            Is("GPU", "AMD"),
            Is("compute capability", 90, 100),
            AllOf(Since("0.10.2"), Is("attention backend", "FLASHINFER")),
        ),
    ),
    avoid="Leave out --calculate-kv-scales.",
    harm=CRASH,
)
