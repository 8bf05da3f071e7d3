"""vllm.fa3-cascade, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, SHARED_BATCH

from . import wrap

_FLASH = "vllm.v1.attention.backends.flash_attn"
_BUILDER, _IMPL = f"{_FLASH}:FlashAttentionMetadataBuilder", f"{_FLASH}:FlashAttentionImpl"

FIX = Fix(
    id="vllm.fa3-cascade",
    title="gpt-oss repeats itself when requests share a prefix (Hopper)",
    symptom=(
        "gpt-oss on Hopper repeats itself or drifts off while eight requests or more share a prefix of 256 tokens. No error. "
        "With full CUDA graphs (the default in 0.11.0), any model may end in such a batch of an illegal memory access."
    ),
    symptoms=(SHARED_BATCH, CACHED_PREFIX, DIES),
    cause=(
        "For such a batch, the shared prefix is attended to once, by a path of its own. That path does not hand the model's "
        "attention sinks to the kernel. With full CUDA graphs it also does not say how many splits the scheduler's metadata "
        "was made for: the kernel chooses a number by itself, and makes its buffers for that."
    ),
    correction="Both launches get the number of splits, and that of the prefix gets the sinks.",
    upstream=Upstream("vllm-project/vllm", pull=28702, issue=26203),
    hardware="Hopper (FLASH_ATTN with FlashAttention 3, the default there; prefix caching, no --disable-cascade-attn)",
    default=True,
    default_reason="silent wrong output; later releases pass the same arguments",
    targets=(Target(wrap.forward, needed=wrap.leaves_out, paths=(f"{_IMPL}.forward",)),),
    # Whether there is a cascade, what is made for it, and what it launches
    witnesses=(
        f"{_IMPL}.__init__",
        f"{_FLASH}:cascade_attention",
        f"{_FLASH}:use_cascade_attention",
        f"{_BUILDER}.__init__",
        f"{_BUILDER}.build",
        f"{_BUILDER}.use_cascade_attention",
        f"{_FLASH}:FlashAttentionMetadata",
    ),
    cost="A look at two attributes per layer outside graphs; in a cascade, some µs of host time per layer.",
    avoid=(
        "Start with `--disable-cascade-attn`: shared prefixes are attended to per request; batches with a long shared "
        "prefix get slower."
    ),
    expect=(
        "On one replica with gpt-oss, send sixteen prompts at once that share a long system prompt: stock, answers differ from "
        "those of --disable-cascade-attn, fixed they do not."
    ),
    hits=AllOf(
        Is("attention backend", "FLASH_ATTN"),
        Is("cascade attention", ON),
        AnyOf(Is("attention sinks", ON), Is("full CUDA graphs", ON)),
    ),
)
