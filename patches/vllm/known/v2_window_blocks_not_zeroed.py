"""vllm.v2-window-blocks-not-zeroed, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.v2-window-blocks-not-zeroed",
    title="NaN in FP8 layers with a window of hybrid models, or of their drafters, on Model Runner V2",
    symptom="On the V2 runner, windows read stale bits of states as FP8: acceptance collapses, or answers are garbage.",
    symptoms=(GARBAGE, SPECULATION),
    releases=(">=0.23.0,<0.28.0",),
    code=(
        "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager.__init__",
        "vllm.v1.worker.gpu.model_runner:GPUModelRunner.update_requests",
    ),
    upstream=Upstream("vllm-project/vllm", pull=51749),
    hits=AllOf(
        Is("model runner", "V2"),
        Is("recurrent layers", ON),
        Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"),
        Is("attention backend", "FLASHINFER"),
        Is("compute capability", 100, 103),
        Unseen("sliding-window layers in the model or in its drafter"),
    ),
    avoid="Start with `--kv-cache-dtype auto`, or with `--attention-backend TRITON_ATTN`.",
)
