"""sglang.dsv4-retraction, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.dsv4-retraction",
    title="A decode server of DeepSeek V4 ends as soon as it must take a running request back",
    symptom="The scheduler ends in a NotImplementedError of get_cpu_copy once the KV pool, or that of the window, is full.",
    symptoms=(DIES,),
    releases=(">=0.5.12,<0.5.22",),
    code=(
        "sglang.srt.managers.schedule_batch:ScheduleBatch.release_req",
        "sglang.srt.mem_cache.common:backup_kv_cache",
    ),
    upstream=Upstream("sgl-project/sglang", issue=33385),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("--disaggregation-mode", "decode"),
        Not(Is("--disaggregation-decode-retraction-backup", "host_pool", "none")),
        Unseen("whether a pool runs full while requests decode"),
    ),
    avoid="Lower --max-running-requests of the decode server until its pools hold all requests to their end.",
    harm=CRASH,
)
