"""sglang.pd-abort-reuse, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

_DEFERRED = "$SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE"

BUG = KnownBug(
    id="sglang.pd-abort-reuse",
    title="Garbage on a decode server after an abort: KV of the aborted request lands on another one",
    symptom="Pages of a request that is aborted during its transfer are given away while the prefill server still writes them.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.5.1,<0.5.22",),
    code=("sglang.srt.disaggregation.decode:DecodeTransferQueue.pop_transferred",),
    upstream=Upstream("sgl-project/sglang", pull=35049, issue=24527),
    hits=AllOf(
        Is("--disaggregation-mode", "decode"),
        AnyOf(
            Not(Since("0.5.19")),
            AllOf(Not(Since("0.5.21")), Not(Given(_DEFERRED))),
            Is(_DEFERRED, "0", "false", "False"),
            Is("--disaggregation-transfer-backend", "mori"),
        ),
        Not(AllOf(Not(Since("0.5.10")), Is("--disaggregation-transfer-backend", "nixl"))),
        Unseen("whether clients abort requests while their KV is transferred"),
    ),
    avoid="From 0.5.19 on, set SGLANG_DISAGGREGATION_DEFERRED_DECODE_KV_RELEASE=1 on both servers, with Mooncake or NIXL.",
)
