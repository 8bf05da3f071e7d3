"""vllm.fa2-cascade, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, SHARED_BATCH

from . import wrap

_FLASH = "vllm.v1.attention.backends.flash_attn"
_BUILDER, _IMPL = f"{_FLASH}:FlashAttentionMetadataBuilder", f"{_FLASH}:FlashAttentionImpl"

FIX = Fix(
    id="vllm.fa2-cascade",
    title="Wrong answers while many requests decode behind one shared prefix (FlashAttention 2)",
    symptom=(
        "Answers drift off while all running requests share a prefix of 256 tokens or more and each has some hundred tokens of "
        "its own. An A100 with 8 KV heads has it with 14-21 requests. No error."
    ),
    symptoms=(SHARED_BATCH, CACHED_PREFIX),
    cause=(
        "For such a batch, the shared prefix and the rest of each request are attended to apart, and merged by their LSEs. "
        "Where FlashAttention 2 splits the rest over several blocks, it gives LSEs of grouped queries in another order than it "
        "says: each row is merged by the LSE of another head or request."
    ),
    correction="A decode step whose rest would be split is built without a cascade: each request is attended to whole.",
    upstream=Upstream("vllm-project/vllm", pull=25537, issue=22103),
    hardware=(
        "NVIDIA GPUs on FlashAttention 2: A100, L40S and all but Hopper; Hopper with VLLM_FLASH_ATTN_VERSION=2 (FLASH_ATTN, "
        "prefix caching, no --disable-cascade-attn)"
    ),
    targets=(Target(wrap.build, needed=wrap.is_merged_wrongly, paths=(f"{_BUILDER}.build",)),),
    # Whether there is a cascade, and what it launches. The kernel is compiled, and no Python tells whether it has the change
    # (vllm-project/flash-attention PR 87): the code around it, which was rewritten in 0.11.1, stands for it.
    witnesses=(
        f"{_IMPL}.__init__",
        f"{_IMPL}.forward",
        f"{_FLASH}:cascade_attention",
        f"{_FLASH}:use_cascade_attention",
        f"{_BUILDER}.__init__",
        f"{_BUILDER}.use_cascade_attention",
        f"{_FLASH}:FlashAttentionMetadata",
    ),
    cost="A look at two numbers per step and group of layers. A corrected step reads the prefix once per request.",
    avoid="Start with `--disable-cascade-attn`: shared prefixes are attended to per request.",
    expect=(
        "On one replica, send twenty prompts at once that share a long system prompt and ask for long answers: stock, they "
        "differ from those with --disable-cascade-attn, fixed they do not."
    ),
    hits=AllOf(
        Is("engine core", "V1"),
        Is("attention", "MHA"),
        Is("attention backend", "FLASH_ATTN"),
        Is("cascade attention by FlashAttention 2", ON),
        Is("queries of a KV head", "several"),
        Is("full CUDA graphs", OFF),
        Is("sliding-window layers", OFF),
    ),
)
