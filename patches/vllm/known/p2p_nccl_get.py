"""vllm.p2p-nccl-get, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.p2p-nccl-get",
    title="The decode server answers without the prompt: P2pNcclConnector never fetches KV with send_type GET",
    symptom="Answers are garbage, and the decode server logs `kv_cache is None` for each layer.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.0,<0.11.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.p2p.p2p_nccl_connector:P2pNcclConnector.start_load_kv",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("name of the KV connector", "P2pNcclConnector"), Unseen("`send_type` GET in kv_connector_extra_config")),
    avoid="Set `send_type` to PUT_ASYNC.",
)
