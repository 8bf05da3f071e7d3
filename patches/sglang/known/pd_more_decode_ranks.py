"""sglang.pd-more-decode-ranks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.pd-more-decode-ranks",
    title="Garbage with P/D disaggregation where decode has more tensor-parallel ranks than prefill",
    symptom="A decode rank gets the heads behind those that the prefill rank has, which are of another token.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.1,<0.5.2",),
    code=("sglang.srt.disaggregation.mooncake.conn:MooncakeKVManager.send_kvcache_slice",),
    upstream=Upstream("sgl-project/sglang", pull=9960),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("--disaggregation-mode", "prefill", "decode"),
        Not(Is("--disaggregation-transfer-backend", "nixl")),
        Not(Is("--tp-size", "off", "1")),
        Unseen("whether decode has more attention ranks than prefill, and prefill more than one"),
    ),
    avoid="Give both sides the same --tp-size and --dp-size.",
)
