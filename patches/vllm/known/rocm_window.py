"""vllm.rocm-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

BUG = KnownBug(
    id="vllm.rocm-window",
    title="Slightly worse answers beyond the window on AMD: ROCM_ATTN loses its oldest token",
    symptom="On AMD, models with a sliding window differ slightly from TRITON_ATTN once a request is longer than the window.",
    symptoms=(BACKEND, LONG_PROMPT),
    releases=(">=0.13.0,<0.32.0",),
    code=("vllm.v1.attention.backends.rocm_attn:RocmAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("sliding-window layers", ON),
        Is("attention sinks", OFF),
        AnyOf(
            Is("--attention-backend", "ROCM_ATTN"),
            Given("--attention-config.use_prefill_decode_attention"),
            AllOf(Since("0.19.0"), Is("--attention-backend", "off"), Is("KV connector", OFF)),
        ),
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`.",
)
