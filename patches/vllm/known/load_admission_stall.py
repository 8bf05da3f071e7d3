"""vllm.load-admission-stall, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_LOADING = (
    *("OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheMPConnector", "MooncakeStoreConnector"),
    *("HF3FSKVConnector", "FlexKVConnectorV1"),
)
BUG = KnownBug(
    id="vllm.load-admission-stall",
    title="Nothing runs and all requests wait once loads have filled the KV cache (KV offloading)",
    symptom="Requests that loaded a part of their prompt hold all blocks, and none of them gets the blocks that it lacks.",
    symptoms=(DIES,),
    releases=(">=0.11.0,<0.23.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm", pull=44560, issue=45388),
    hits=AllOf(
        Is("name of the KV connector", *_LOADING),
        Unseen("several long prompts at once that are found in the outer cache and together exceed the KV cache"),
    ),
    avoid="Let a router send no more requests at once than the KV cache has room for; `--max-num-seqs` does not count loads.",
    harm=CRASH,
)
