"""vllm.nixl-late-notif, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.nixl-late-notif",
    title="The prefill server dies when KV is read after its time ran out (NIXL)",
    symptom="A KeyError ends the engine when a decode server reports blocks that the prefill server has already released.",
    symptoms=(DIES,),
    releases=(">=0.10.0,<0.10.1",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._get_new_notifs",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector"),
        Unseen("a decode server that reads KV later than VLLM_NIXL_ABORT_REQUEST_TIMEOUT, or at once beside async scheduling"),
    ),
    avoid="Raise `VLLM_NIXL_ABORT_REQUEST_TIMEOUT`.",
    harm=CRASH,
)
