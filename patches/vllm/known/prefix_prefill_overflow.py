"""vllm.prefix-prefill-overflow, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, DIES, GARBAGE

_ASKED = AnyOf(Given("--enable-prefix-caching"), Given("--enable-chunked-prefill"))
#: V0 caches no prefix, and prefills in one piece, unless an option says so; on NVIDIA in chunks from 32769 tokens on
_CHUNKED = AnyOf(_ASKED, Unseen("a context length above 32768"))
_V0 = AllOf(
    Is("engine core", "V0"),
    AnyOf(AllOf(Is("GPU", "NVIDIA"), Is("attention backend", "XFORMERS"), _CHUNKED), AllOf(Is("GPU", "AMD"), _ASKED)),
)
_AITER = AllOf(Is("GPU", "AMD"), Given("$VLLM_ROCM_USE_AITER"), Not(Is("$VLLM_ROCM_USE_AITER_MHA", "0", "false", "False")))
_V1 = AllOf(
    Is("engine core", "V1"),
    Given("$VLLM_V1_USE_PREFILL_DECODE_ATTENTION"),
    AnyOf(Is("GPU", "AMD"), Is("attention backend", "TRITON_ATTN")),
    Not(_AITER),
)

BUG = KnownBug(
    id="vllm.prefix-prefill-overflow",
    title="A large KV cache is read at wrong addresses behind a cached context (prefix-prefill kernel)",
    symptom=(
        "Garbage or a memory fault once the cache of a layer has more than 2147483648 elements: an offset of 32 bits overflows."
    ),
    symptoms=(DIES, GARBAGE, CACHED_PREFIX),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.attention.ops.prefix_prefill:_fwd_kernel",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("cached prefix", ON),
        AnyOf(_V0, _V1),
        Unseen("tokens of the KV cache times the size of K per layer above 2147483648"),
    ),
    avoid="Leave `VLLM_V1_USE_PREFILL_DECODE_ATTENTION` out, or lower `--gpu-memory-utilization`.",
    harm=CRASH,
)
