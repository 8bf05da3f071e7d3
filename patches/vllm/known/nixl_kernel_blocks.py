"""vllm.nixl-kernel-blocks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SLOW

BUG = KnownBug(
    id="vllm.nixl-kernel-blocks",
    title="No KV arrives from the prefill server with blocks of 128 tokens (NIXL)",
    symptom="Each handshake fails with an AssertionError on the sizes of blocks, and decode servers compute all prompts again.",
    symptoms=(SLOW,),
    releases=(">=0.11.1,<0.12.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker.register_kv_caches",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("name of the KV connector", "NixlConnector"),
        Is("--block-size", "128", "256"),
        Is("attention backend", "FLASH_ATTN", "FLASHINFER", "FLASHMLA", "FLASHINFER_MLA"),
    ),
    avoid="Set `--block-size 64`, or less, on both servers.",
    harm=SLOWER,
)
