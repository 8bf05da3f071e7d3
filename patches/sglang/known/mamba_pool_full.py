"""sglang.mamba-pool-full, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.mamba-pool-full",
    title="Qwen3-Next ends as soon as cached states fill their pool: none is evicted for a new request",
    symptom="""After some hundred requests the scheduler ends in "'NoneType' object is not subscriptable".""",
    symptoms=(DIES,),
    releases=(">=0.5.3.post2,<0.5.4",),
    code=("sglang.srt.mem_cache.common:alloc_req_slots",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("--disable-radix-cache", "off"),
        Not(Is("--disaggregation-mode", "decode")),
    ),
    avoid="Set --disable-radix-cache.",
)
