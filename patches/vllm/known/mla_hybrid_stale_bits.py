"""vllm.mla-hybrid-stale-bits, as data. Earlier releases: vllm.hybrid-stale-bits."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

_MANAGER = "vllm.v1.core.single_type_kv_cache_manager:SingleTypeKVCacheManager"

BUG = KnownBug(
    id="vllm.mla-hybrid-stale-bits",
    title="NaN that grows with uptime: Kimi Linear reads states as latents, whose new blocks are not cleared",
    symptom="Kimi Linear answers well until its cache was full once. Then more and more answers are garbage.",
    symptoms=(GARBAGE,),
    releases=(">=0.17.1,<0.23.0",),
    code=(f"{_MANAGER}.allocate_new_blocks", f"{_MANAGER}.allocate_new_computed_blocks"),
    upstream=Upstream("vllm-project/vllm", pull=43961),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("recurrent layers", ON),
        Is("states in another format than KV", ON),
        Not(Is("attention backend", "TRITON_MLA")),
        AnyOf(
            Is("attention backend", "FLASHMLA", "FLASHINFER_MLA"),
            Unseen("a kernel of attention that multiplies masked values by zero"),
        ),
    ),
    avoid="Start with `--attention-backend TRITON_MLA`.",
)
