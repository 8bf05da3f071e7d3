"""vllm.v2-flashinfer-race, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.v2-flashinfer-race",
    title="Attention now and then reads pages of the next step (FlashInfer, V2 model runner)",
    symptom="Under load answers turn into garbage at random: pinned page tables are overwritten while they are copied.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.14.0,<0.15.0",),
    code=("vllm.v1.attention.backends.flashinfer:FlashInferMetadataBuilder.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("model runner", "V2"), Is("attention backend", "FLASHINFER")),
    avoid="Start without `VLLM_USE_V2_MODEL_RUNNER`.",
)
