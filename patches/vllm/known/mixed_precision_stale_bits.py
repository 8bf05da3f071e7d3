"""vllm.mixed-precision-stale-bits, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Given, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.mixed-precision-stale-bits",
    title="NaN with an FP8 KV cache and layers that keep their dtype",
    symptom=(
        "With `--kv-cache-dtype-skip-layers`, answers turn into garbage once blocks of one dtype were given to layers of "
        "another one."
    ),
    symptoms=(GARBAGE, KV_SCALES),
    releases=(">=0.19.0,<0.27.0",),
    code=("vllm.v1.kv_cache_interface:KVCacheConfig.needs_kv_cache_zeroing",),
    upstream=Upstream("vllm-project/vllm", pull=47574),
    hits=AllOf(
        Given("--kv-cache-dtype-skip-layers"),
        Is("sliding-window layers", ON),
        Is("recurrent layers", OFF),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
    ),
    avoid="Leave `--kv-cache-dtype-skip-layers` out, or keep the whole cache in the model's dtype.",
)
