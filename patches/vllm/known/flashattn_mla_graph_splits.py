"""vllm.flashattn-mla-graph-splits, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="vllm.flashattn-mla-graph-splits",
    title="Illegal memory access with full CUDA graphs and large batches (FLASH_ATTN_MLA)",
    symptom=(
        "An illegal memory access ends the engine: a step larger than the largest graph is scheduled for more splits than it "
        "runs with."
    ),
    symptoms=(DIES, GRAPHS),
    releases=(">=0.10.2,<0.11.1",),
    code=(
        "vllm.v1.attention.backends.mla.flashattn_mla:FlashAttnMLAMetadataBuilder._build_decode",
        "vllm.v1.attention.backends.mla.flashattn_mla:FlashAttnMLAMetadataBuilder._schedule_decode",
    ),
    upstream=Upstream("vllm-project/vllm", pull=27128),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "FLASH_ATTN_MLA"),
        Is("full CUDA graphs", ON),
        Unseen("a step of more decodes than the largest graph has, 512 by default"),
    ),
    avoid="Set `--compilation-config.cudagraph_mode PIECEWISE`, or take FLASHMLA.",
    harm=CRASH,
)
