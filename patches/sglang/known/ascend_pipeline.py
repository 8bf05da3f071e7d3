"""sglang.ascend-pipeline, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.ascend-pipeline",
    title="Crash at the first prompt with pipeline parallelism on Ascend",
    symptom="The second stage writes KV by the number of the layer in the whole model, and ends in an index out of range.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.4.post2",),
    code=("sglang.srt.mem_cache.memory_pool:AscendTokenToKVPool.set_kv_buffer",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("prefill backend", "ascend"),
        Not(Is("--pp-size", "off", "1")),
    ),
    avoid="Use --tp-size in place of --pp-size.",
)
