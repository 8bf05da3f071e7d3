"""vllm.sleep-fp8-scales, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, KV_SCALES

BUG = KnownBug(
    id="vllm.sleep-fp8-scales",
    title="Gibberish after a deep sleep with an FP8 KV cache",
    symptom="After sleep of level 2 and a wake-up, all answers are garbage: the scales of K and V are not kept.",
    symptoms=(
        KV_SCALES,
        GARBAGE,
    ),
    releases=(">=0.10.0,<0.12.0",),
    code=("vllm.v1.worker.gpu_worker:Worker.wake_up",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("--enable-sleep-mode", ON), Is("KV cache dtype", "fp8", "fp8_e4m3", "fp8_e5m2"), Unseen("a sleep of level 2")
    ),
    avoid="Sleep with level 1, or keep a KV cache of 16 bits.",
)
