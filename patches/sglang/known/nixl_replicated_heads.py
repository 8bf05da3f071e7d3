"""sglang.nixl-replicated-heads, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="sglang.nixl-replicated-heads",
    title="P/D over NIXL between unequal TP sizes fails where a model has fewer KV heads than ranks",
    symptom="Transfers end in NIXL_ERR_NOT_FOUND or a division by zero. In other layouts, ranks get KV of another head.",
    symptoms=(GARBAGE, PARALLEL),
    releases=(">=0.5.2,<0.5.17",),
    code=(
        "sglang.srt.disaggregation.nixl.conn:NixlKVManager.send_kvcache_slice",
        "sglang.srt.disaggregation.nixl.conn:NixlKVManager._init_hetero_tp_prep_handle",
    ),
    upstream=Upstream("sgl-project/sglang", pull=31968, issue=31295),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("--disaggregation-mode", "prefill", "decode"),
        Is("--disaggregation-transfer-backend", "nixl"),
        Unseen("whether attention ranks differ, and are more than KV heads on a server (from 0.5.11 on: the decode server)"),
    ),
    avoid="Give both servers the same attention TP size.",
    harm=CRASH,
)
