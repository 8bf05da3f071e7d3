"""vllm.flashattn-mla-sync, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.flashattn-mla-sync",
    title="Async scheduling brings nothing on FLASH_ATTN_MLA: each decode step waits for the GPU",
    symptom="Throughput with async scheduling is as without: the longest length of a step is read back from the GPU.",
    symptoms=(SLOW,),
    releases=(">=0.11.1,<0.11.2",),
    code=("vllm.v1.attention.backends.mla.flashattn_mla:FlashAttnMLAMetadataBuilder._build_decode",),
    upstream=Upstream("vllm-project/vllm", pull=28990),
    hits=AllOf(Is("attention", "MLA"), Is("attention backend", "FLASH_ATTN_MLA"), Is("async scheduling", ON)),
    avoid="Set `VLLM_ATTENTION_BACKEND=FLASHMLA`.",
    harm=SLOWER,
)
