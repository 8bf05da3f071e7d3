"""sglang.pd-replicated-heads, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.pd-replicated-heads",
    title="Garbage with P/D between unequal TP sizes, where a model has fewer KV heads than ranks (Mooncake)",
    symptom="A rank that shares a KV head with its neighbour gets another head. Up to 0.5.9, some transfers fail instead.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.1,<0.5.16",),
    code=("sglang.srt.disaggregation.mooncake.conn:MooncakeKVManager.send_kvcache_slice",),
    upstream=Upstream("sgl-project/sglang", pull=30997, issue=23746),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "off", "mooncake", "mooncake_tcp", "ascend"),
        Unseen("whether attention ranks differ, and are more than KV heads on a server (from 0.5.10 on: the decode server)"),
    ),
    avoid="Give both servers the same attention TP size.",
)
