"""vllm.flashattn-mla-graph-splits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="vllm.flashattn-mla-graph-splits",
    title="Illegal memory access where a step outgrows the largest CUDA graph (FLASH_ATTN_MLA)",
    symptom=(
        "An MLA model on FLASH_ATTN_MLA with full CUDA graphs ends with an illegal memory access: a step beyond the graphs is "
        "planned with more splits than it gets."
    ),
    symptoms=(DIES, GRAPHS),
    releases=(">=0.10.2,<0.11.1",),
    code=(
        "vllm.v1.attention.backends.mla.flashattn_mla:FlashAttnMLAMetadataBuilder._build_decode",
        "vllm.v1.attention.backends.mla.flashattn_mla:FlashAttnMLAMetadataBuilder._schedule_decode",
    ),
    upstream=Upstream("vllm-project/vllm", pull=27128),
    hits=AllOf(
        AllOf(Is("attention", "MLA"), Is("attention backend", "FLASH_ATTN_MLA"), Is("full CUDA graphs", ON)),
        Unseen("decodes and prompts of up to 512 tokens that are more tokens together than the largest graph"),
    ),
    avoid="Set `--compilation-config.cudagraph_mode PIECEWISE`, or take FLASHMLA.",
    harm=CRASH,
)
