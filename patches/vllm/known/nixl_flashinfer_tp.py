"""vllm.nixl-flashinfer-tp, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-flashinfer-tp",
    title="Garbage from a prefill server with fewer ranks than the decode server (NIXL, FlashInfer)",
    symptom="A rank of the decode server reads other bytes of each block, such as K of all heads, for its K and V.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.0,<0.10.2",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker.add_remote_agent",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASHINFER"),
        Is("name of the KV connector", "NixlConnector"),
        Unseen("a prefill server with fewer ranks of tensor parallelism than the decode server"),
    ),
    avoid="Give both servers the same `--tensor-parallel-size`, or take FLASH_ATTN.",
)
