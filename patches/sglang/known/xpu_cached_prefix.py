"""sglang.xpu-cached-prefix, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, CACHED_PREFIX, LONG_PROMPT

BUG = KnownBug(
    id="sglang.xpu-cached-prefix",
    title="Wrong answers on Intel GPUs to prompts with a cached prefix, and to those prefilled in chunks",
    symptom="Follow-up turns and long prompts are answered badly on intel_xpu: the kernel takes all keys for new ones.",
    symptoms=(CACHED_PREFIX, LONG_PROMPT, BACKEND),
    releases=(">=0.5.4,<0.5.13",),
    code=("sglang.srt.layers.attention.xpu_backend:XPUAttentionBackend.forward_extend",),
    upstream=Upstream("sgl-project/sglang", pull=23280),
    hits=AllOf(
        Is("prefill backend", "intel_xpu"),
        Not(AllOf(Given("--disable-radix-cache"), Is("--chunked-prefill-size", "-1"))),
    ),
    avoid="Set `--disable-radix-cache --chunked-prefill-size -1`, or `--attention-backend triton`.",
)
