"""vllm.nixl-async-stranded, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.nixl-async-stranded",
    title="Blocks of a prefill server stay occupied until they time out (NIXL, async scheduling)",
    symptom=(
        "The log says `Potentially invalid KV blocks for unrecognized request`, and the KV cache of the prefill server "
        "fills up."
    ),
    symptoms=(SLOW,),
    releases=(">=0.10.1,<0.11.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._get_new_notifs",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector"),
        Is("async scheduling", ON),
        Unseen("a decode server that reads KV before the next step of the prefill server ends"),
    ),
    avoid="Leave `--async-scheduling` out on the prefill server.",
    harm=SLOWER,
)
