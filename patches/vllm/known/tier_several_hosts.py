"""vllm.tier-several-hosts, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE

BUG = KnownBug(
    id="vllm.tier-several-hosts",
    title="A prefix from a second tier is garbage where ranks run on several hosts (OffloadingConnector)",
    symptom="The scheduler fills memory of its own host alone: ranks elsewhere load what another prefix left there.",
    symptoms=(CACHED_PREFIX, GARBAGE),
    releases=(">=0.22.0,<=0.33.0",),
    code=("vllm.v1.kv_offload.tiering.spec:TieringOffloadingSpec.get_manager",),
    upstream=Upstream("eugr/spark-vllm-docker", pull=373),
    hits=AllOf(
        Is("name of the KV connector", "OffloadingConnector"),
        Unseen("a TieringOffloadingSpec with a second tier, and ranks of one engine on several hosts"),
    ),
    avoid="Offload to the CPU alone, without a second tier.",
)
