"""vllm.mooncake-kernel-blocks, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mooncake-kernel-blocks",
    title="Mooncake transfers wrong blocks where attention's kernel splits a KV block",
    symptom="A P/D pair answers garbage: numbers of whole blocks address the parts that the kernel makes of them.",
    symptoms=(GARBAGE,),
    releases=(">=0.20.0,<0.25.0",),
    code=(
        "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector:"
        "MooncakeConnectorWorker._sync_block_size_with_kernel",
    ),
    upstream=Upstream("vllm-project/vllm", pull=46334),
    hits=AllOf(
        Is("--kv-transfer-config.kv_connector", "MooncakeConnector", "MultiConnector"),
        Unseen("blocks larger than those of the kernel, as `--block-size 128` with FlashInfer, or 16 with sparse MLA on AMD"),
    ),
    avoid="Start with a `--block-size` that the attention backend takes as it is, such as 64 with FlashInfer.",
)
