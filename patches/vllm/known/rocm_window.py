"""vllm.rocm-window, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, LONG_PROMPT

#: What takes ROCM_ATTN: asked for, or the default from 0.19.0 on
_TAKEN = AnyOf(
    Is("--attention-backend", "ROCM_ATTN"),
    Is("--attention-config.backend", "ROCM_ATTN"),
    AllOf(Not(Since("0.15.0")), Is("$VLLM_ATTENTION_BACKEND", "ROCM_ATTN")),
    AllOf(
        Not(AnyOf(Given("--attention-backend"), Given("--attention-config.backend"))),
        AnyOf(
            AllOf(
                Not(Since("0.19.0")),
                Not(Given("$VLLM_ROCM_USE_AITER")),
                AnyOf(
                    Given("--attention-config.use_prefill_decode_attention"),
                    AllOf(Not(Since("0.15.0")), Given("$VLLM_V1_USE_PREFILL_DECODE_ATTENTION")),
                ),
            ),
            AllOf(Since("0.19.0"), Not(AllOf(Since("0.23.0"), Is("KV connector", ON)))),
        ),
    ),
)

BUG = KnownBug(
    id="vllm.rocm-window",
    title="Slightly worse answers beyond the window on AMD: ROCM_ATTN loses its oldest token",
    symptom="On AMD, models with a sliding window differ slightly from TRITON_ATTN once a request is longer than the window.",
    symptoms=(BACKEND, LONG_PROMPT),
    releases=(">=0.11.1,<0.32.0",),
    code=("vllm.v1.attention.backends.rocm_attn:RocmAttentionImpl.forward",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", "AMD"),
        Is("sliding-window layers", ON),
        Is("attention sinks", OFF),
        _TAKEN,
    ),
    avoid="Start with `--attention-backend TRITON_ATTN`, up to 0.12 with `VLLM_ATTENTION_BACKEND=TRITON_ATTN`.",
)
