"""sglang.hisparse-retraction, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.hisparse-retraction",
    title="A decode server with HiSparse ends as soon as it must take a running request back",
    symptom="The scheduler ends in a NotImplementedError of get_cpu_copy once the KV pool is full.",
    symptoms=(DIES,),
    releases=(">=0.5.10,<=0.5.23",),
    code=("sglang.srt.managers.schedule_batch:Req.offload_kv_cache",),
    upstream=Upstream("sgl-project/sglang", issue=40729),
    hits=AllOf(
        Given("--enable-hisparse"),
        Is("--disaggregation-mode", "decode"),
        Not(AllOf(Since("0.5.22"), Is("architecture", "DeepseekV4ForCausalLM"))),
        Not(Is("--disaggregation-decode-retraction-backup", "host_pool", "none")),
        Unseen("whether the pool runs full while requests decode"),
    ),
    avoid="From 0.5.21 on: --disaggregation-decode-retraction-backup none. Before: lower --max-running-requests.",
    harm=CRASH,
)
