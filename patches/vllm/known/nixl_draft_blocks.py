"""vllm.nixl-draft-blocks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

BUG = KnownBug(
    id="vllm.nixl-draft-blocks",
    title="The decode server dies at its first transfer with EAGLE or MTP (NIXL)",
    symptom="An AssertionError in `_read_blocks` ends the engine: a block for drafts is counted among those to be read.",
    symptoms=(
        DIES,
        SPECULATION,
    ),
    releases=(">=0.10.0,<0.10.1",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.schedule",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector"),
        Is("drafts from hidden states", ON),
        Unseen("a server that reads KV of another one"),
    ),
    avoid="Serve without --speculative-config on the decode server.",
    harm=CRASH,
)
