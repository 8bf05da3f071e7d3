"""sglang.pd-mamba-draft-states, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import PARALLEL

BUG = KnownBug(
    id="sglang.pd-mamba-draft-states",
    title="P/D transfers of hybrid models that draft fail: a prefill server reads past the states of drafts",
    symptom="Buffers for drafts hold fewer requests than recurrent states do, and are sent by the same slot.",
    symptoms=(PARALLEL,),
    releases=(">=0.5.7,<0.5.8",),
    code=("sglang.srt.mem_cache.memory_pool:MambaPool.get_contiguous_buf_infos",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("--disaggregation-mode", "prefill"),
        Not(Is("--disaggregation-transfer-backend", "nixl", "fake")),
        Is("--disable-radix-cache", OFF),
    ),
    avoid="Set --disable-radix-cache on the prefill server.",
)
