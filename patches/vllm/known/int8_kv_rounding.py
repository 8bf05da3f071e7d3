"""vllm.int8-kv-rounding, as data."""

from attnfix.compat.doctor.condition import Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.int8-kv-rounding",
    title="Answers lose accuracy with `--kv-cache-dtype int8_per_token_head`: keys and values are truncated",
    symptom="Each value is cut towards zero, not rounded: the cache's error doubles and has a bias.",
    symptoms=(KV_SCALES,),
    releases=(">=0.20.0,<0.24.0",),
    code=("vllm.v1.attention.ops.triton_reshape_and_cache_flash:_reshape_cache_per_token_head",),
    upstream=Upstream("vllm-project/vllm", pull=45361),
    hits=Is("KV cache dtype", "int8_per_token_head"),
    avoid="Start with `--kv-cache-dtype fp8_per_token_head`, or leave it at `auto`.",
)
