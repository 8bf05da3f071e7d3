"""vllm.p2p-nccl-flashinfer, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.p2p-nccl-flashinfer",
    title="The prefill server dies when it sends KV (P2pNcclConnector, FlashInfer)",
    symptom="A device-side assertion ends the engine at the first transfer: slots are looked up as if K and V lay apart.",
    symptoms=(DIES,),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.p2p.p2p_nccl_engine:P2pNcclEngine.extract_kv_from_layer",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASHINFER"),
        Is("name of the KV connector", "P2pNcclConnector"),
    ),
    avoid="Set `VLLM_ATTENTION_BACKEND=FLASH_ATTN`.",
    harm=CRASH,
)
